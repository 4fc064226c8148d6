# GTest from the pinned source, built with our flags; target GTest::gtest_main.
include("${CMAKE_CURRENT_LIST_DIR}/Pinned.cmake")
headwise_pinned(googletest GOOGLETEST)

set(BUILD_GMOCK OFF CACHE BOOL "" FORCE)
set(INSTALL_GTEST OFF CACHE BOOL "" FORCE)
if(EMSCRIPTEN)
  set(gtest_disable_pthreads ON CACHE BOOL "" FORCE)
endif()
if(NOT TARGET GTest::gtest)
  add_subdirectory("${googletest_SOURCE_DIR}"
                   "${CMAKE_BINARY_DIR}/third-party/googletest"
                   EXCLUDE_FROM_ALL SYSTEM)
endif()
