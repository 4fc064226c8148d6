# headwise_hwy: the part of Highway that the kernels link (target detection and
# what it needs), from the pinned source. It is compiled by our own rule and not
# by Highway's CMake, so that it gets exactly our flags: Highway adds -matomics
# on WASM, which a build without threads must not carry.
include("${CMAKE_CURRENT_LIST_DIR}/Pinned.cmake")
headwise_pinned(highway HIGHWAY)

add_library(headwise_hwy STATIC
  "${highway_SOURCE_DIR}/hwy/abort.cc"
  "${highway_SOURCE_DIR}/hwy/per_target.cc"
  "${highway_SOURCE_DIR}/hwy/print.cc"
  "${highway_SOURCE_DIR}/hwy/targets.cc")
target_include_directories(headwise_hwy SYSTEM PUBLIC
  "$<BUILD_INTERFACE:${highway_SOURCE_DIR}>")
target_compile_features(headwise_hwy PUBLIC cxx_std_17)
target_compile_definitions(headwise_hwy PUBLIC HWY_STATIC_DEFINE)
if(NOT MSVC)
  target_compile_options(headwise_hwy PRIVATE -fno-exceptions -w)
endif()
include(CheckIncludeFileCXX)
check_include_file_cxx(sys/auxv.h HEADWISE_HAVE_SYS_AUXV_H)
if(NOT HEADWISE_HAVE_SYS_AUXV_H)
  target_compile_definitions(headwise_hwy PUBLIC TOOLCHAIN_MISS_SYS_AUXV_H)
endif()
set_target_properties(headwise_hwy PROPERTIES
  CXX_EXTENSIONS OFF EXPORT_NAME hwy)
if(NOT EMSCRIPTEN)
  set_target_properties(headwise_hwy PROPERTIES POSITION_INDEPENDENT_CODE ON)
endif()
