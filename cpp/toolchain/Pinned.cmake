# headwise_pinned(<name> <PREFIX>): fetches the third-party source <name> of
# pins.json into <name>_SOURCE_DIR without adding its targets to the build.
# Another archive: HEADWISE_<PREFIX>_URL and HEADWISE_<PREFIX>_HASH. A folder
# that is already there: FETCHCONTENT_SOURCE_DIR_<PREFIX>.
include_guard(GLOBAL)
include(FetchContent)

function(headwise_pinned name prefix)
  file(READ "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/pins.json" pins)
  string(JSON url GET "${pins}" ${name} url)
  string(JSON hash GET "${pins}" ${name} sha256)
  # Not cached: a build folder must follow when the pins move.
  if(DEFINED HEADWISE_${prefix}_URL)
    set(url "${HEADWISE_${prefix}_URL}")
  endif()
  set(url_hash "SHA256=${hash}")
  if(DEFINED HEADWISE_${prefix}_HASH)
    set(url_hash "${HEADWISE_${prefix}_HASH}")
  endif()
  if(NOT url_hash MATCHES "^[A-Z0-9_]+=[0-9a-fA-F]+$")
    message(FATAL_ERROR
      "HEADWISE_${prefix}_HASH is \"${url_hash}\", wanted "
      "ALGORITHM=hex; give the hash of the archive, as SHA256=…")
  endif()
  FetchContent_Declare(headwise_${name}
    URL "${url}"
    URL_HASH "${url_hash}"
    DOWNLOAD_EXTRACT_TIMESTAMP FALSE
    # A folder that does not exist: populate only, add nothing.
    SOURCE_SUBDIR headwise-adds-its-own-targets)
  if(FETCHCONTENT_SOURCE_DIR_${prefix})
    set(FETCHCONTENT_SOURCE_DIR_HEADWISE_${prefix}
        "${FETCHCONTENT_SOURCE_DIR_${prefix}}")
  endif()
  FetchContent_MakeAvailable(headwise_${name})
  set(${name}_SOURCE_DIR "${headwise_${name}_SOURCE_DIR}" PARENT_SCOPE)
endfunction()
