# headwise_json: nlohmann-json, for the native conformance runner only.
include("${CMAKE_CURRENT_LIST_DIR}/Pinned.cmake")
headwise_pinned(json JSON)

add_library(headwise_json INTERFACE)
target_include_directories(headwise_json SYSTEM INTERFACE
  "${json_SOURCE_DIR}/single_include")
