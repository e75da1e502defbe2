# How our shared libraries are linked. The C++ runtime may be a shared one or, where the compiler does so, linked into
# each library: then none of it may be seen from outside, and exceptions must pass between our libraries all the same.

# Exports what the version script lists and nothing else.
function(tcim_lite_export_only target script)
  target_link_options(${target} PRIVATE -Wl,--version-script=${script})
  set_property(TARGET ${target} APPEND PROPERTY LINK_DEPENDS ${script})
  target_link_libraries(${target} PRIVATE ${TCIM_LITE_UNWINDER})
endfunction()

# For a library that links libtcim_runtime_lite.so: both count exceptions in one place (exception_state.cpp).
function(tcim_lite_share_exceptions target)
  target_link_options(${target} PRIVATE -Wl,--wrap=__cxa_get_globals,--wrap=__cxa_get_globals_fast)
endfunction()
