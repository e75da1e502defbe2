# Whether libraries linked as ours are work together, asked of two small ones (probe/). Sets TCIM_LITE_UNWINDER to what
# they have to link besides. An unwinder linked into each library aborts at the first exception from another, and knows
# nothing of threads that glibc ends; libgcc's shared one is in every process with PyTorch or pthread_exit.
function(tcim_lite_try_cxx_runtime unwinder)
  set(folder ${CMAKE_CURRENT_BINARY_DIR}/cxx_runtime_probe)
  file(REMOVE_RECURSE ${folder})
  set(flags)
  foreach(name CMAKE_BUILD_TYPE CMAKE_CXX_FLAGS CMAKE_SHARED_LINKER_FLAGS CMAKE_MODULE_LINKER_FLAGS
               CMAKE_EXE_LINKER_FLAGS)
    list(APPEND flags "-D${name}=${${name}}")
  endforeach()
  try_compile(built ${folder} ${CMAKE_CURRENT_SOURCE_DIR}/cxx_runtime/probe cxx_runtime_probe
    CMAKE_FLAGS ${flags} "-DTCIM_LITE_UNWINDER=${unwinder}" OUTPUT_VARIABLE output)
  set(works FALSE)
  if(built)
    execute_process(COMMAND ${folder}/probe ${folder}/libuser.so RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
    if(status STREQUAL "0")
      set(works TRUE)
    endif()
    set(output "The probe ended with ${status}. ${output}")
  endif()
  set(works ${works} PARENT_SCOPE)
  set(output "${output}" PARENT_SCOPE)
endfunction()

if(NOT DEFINED TCIM_LITE_UNWINDER)
  set(works ${CMAKE_CROSSCOMPILING})
  set(failures)
  foreach(unwinder "" gcc_s)
    if(NOT works)
      tcim_lite_try_cxx_runtime("${unwinder}")
      string(APPEND failures "\nlinking '${unwinder}': ${output}")
      set(found "${unwinder}")
    endif()
  endforeach()
  if(NOT works)
    message(FATAL_ERROR
      "tcim_lite: exceptions do not pass between shared libraries that ${CMAKE_CXX_COMPILER} (${CMAKE_CXX_COMPILER_ID} "
      "${CMAKE_CXX_COMPILER_VERSION}) links; a C++ runtime linked into each library needs the shared libgcc_s "
      "and the same flags in CMAKE_SHARED_LINKER_FLAGS and CMAKE_MODULE_LINKER_FLAGS. Use a compiler with a shared "
      "libstdc++, or install libgcc_s.so for this one.${failures}")
  endif()
  if(found)
    message(STATUS "The C++ runtime is linked into each library; they share lib${found}.so")
  endif()
  set(TCIM_LITE_UNWINDER "${found}" CACHE INTERNAL "What libraries link so that exceptions pass between them")
endif()
