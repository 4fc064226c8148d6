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
  set(HEADWISE_${prefix}_URL "${url}" CACHE STRING "Archive of ${name}")
  set(HEADWISE_${prefix}_HASH "SHA256=${hash}" CACHE STRING
      "Hash of the archive of ${name}, as ALGORITHM=hex")
  if(NOT HEADWISE_${prefix}_HASH MATCHES "^[A-Z0-9_]+=[0-9a-fA-F]+$")
    message(FATAL_ERROR
      "HEADWISE_${prefix}_HASH is \"${HEADWISE_${prefix}_HASH}\", wanted "
      "ALGORITHM=hex; give the hash of the archive, as SHA256=…")
  endif()
  FetchContent_Declare(headwise_${name}
    URL "${HEADWISE_${prefix}_URL}"
    URL_HASH "${HEADWISE_${prefix}_HASH}"
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
