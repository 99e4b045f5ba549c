# cmake -D PROGRAM=path -D INTO=folder -P bundle_libraries.cmake: copies the shared libraries that PROGRAM needs.
cmake_minimum_required(VERSION 3.25)

# The loader itself says what it takes from where. (file(GET_RUNTIME_DEPENDENCIES) stops at libraries that are in both places.)
execute_process(COMMAND ldd ${PROGRAM} OUTPUT_VARIABLE output COMMAND_ERROR_IS_FATAL ANY)
if(output MATCHES "([^ \n\t]+) => not found")
  message(FATAL_ERROR "${PROGRAM} needs ${CMAKE_MATCH_1}, which is not here")
endif()
string(REGEX MATCHALL "=> /[^ \n]+" libraries "${output}")

file(MAKE_DIRECTORY ${INTO})
foreach(library IN LISTS libraries)
  string(SUBSTRING ${library} 3 -1 library)
  get_filename_component(name ${library} NAME)
  if(name MATCHES "^lib(c|m|dl|rt|pthread|resolv|util|stdc\\+\\+|gcc_s|atomic|asan|tsan|ubsan)\\.so" OR
     library STREQUAL "${INTO}/${name}")
    continue()
  endif()
  # Programs of one folder are linked at the same time: a copy appears whole or not at all.
  string(RANDOM LENGTH 8 tag)
  file(COPY_FILE ${library} ${INTO}/${name}.${tag})
  file(RENAME ${INTO}/${name}.${tag} ${INTO}/${name})
endforeach()
