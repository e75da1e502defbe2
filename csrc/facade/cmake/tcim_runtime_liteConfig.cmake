# find_package(tcim_runtime_lite) -> tcim::tcim_runtime_lite; tcim::tcim_runtime_c_api for tcim_c_api.h, tcim::hal_xh2a
# for hm_sys.h. Every path is relative to this file: the folder that holds include/, lib/ and hal/ may be moved.
get_filename_component(_tcim_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
if(NOT TARGET tcim::tcim_runtime_lite)
  add_library(tcim::tcim_runtime_lite SHARED IMPORTED)
  set_target_properties(tcim::tcim_runtime_lite PROPERTIES
    IMPORTED_LOCATION "${_tcim_prefix}/lib/libtcim_runtime_lite.so"
    IMPORTED_SONAME libtcim_runtime_lite.so
    INTERFACE_INCLUDE_DIRECTORIES "${_tcim_prefix}/include"
    INTERFACE_COMPILE_FEATURES cxx_std_17)
endif()
if(NOT TARGET tcim::tcim_runtime_c_api)
  add_library(tcim::tcim_runtime_c_api SHARED IMPORTED)
  set_target_properties(tcim::tcim_runtime_c_api PROPERTIES
    IMPORTED_LOCATION "${_tcim_prefix}/lib/libtcim_runtime_c_api.so"
    IMPORTED_SONAME libtcim_runtime_c_api.so
    IMPORTED_LINK_DEPENDENT_LIBRARIES tcim::tcim_runtime_lite
    INTERFACE_INCLUDE_DIRECTORIES "${_tcim_prefix}/include")
endif()
if(NOT TARGET tcim::hal_xh2a)
  add_library(tcim::hal_xh2a SHARED IMPORTED)
  set_target_properties(tcim::hal_xh2a PROPERTIES
    IMPORTED_LOCATION "${_tcim_prefix}/hal/lib/libhal_xh2a.so"
    IMPORTED_SONAME libhal_xh2a.so
    IMPORTED_LINK_DEPENDENT_LIBRARIES tcim::tcim_runtime_lite
    INTERFACE_INCLUDE_DIRECTORIES "${_tcim_prefix}/hal/export/include")
endif()
unset(_tcim_prefix)
