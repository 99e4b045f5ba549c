# cmake -D PROGRAM=path -P bundle_libraries.cmake: copies the shared libraries that PROGRAM needs into lib/ beside it.
cmake_minimum_required(VERSION 3.25)

file(GET_RUNTIME_DEPENDENCIES
  EXECUTABLES ${PROGRAM}
  RESOLVED_DEPENDENCIES_VAR libraries
  PRE_EXCLUDE_REGEXES "^ld-linux" "^lib(c|m|dl|rt|pthread|resolv|util|stdc\\+\\+|gcc_s|atomic|asan|tsan|ubsan)\\.so")

get_filename_component(folder ${PROGRAM} DIRECTORY)
file(MAKE_DIRECTORY ${folder}/lib)
foreach(library IN LISTS libraries)
  get_filename_component(name ${library} NAME)
  if(library STREQUAL "${folder}/lib/${name}")
    continue()  # found through the program's own path: it is there already
  endif()
  # Programs of one folder end at the same time: a copy appears whole or not at all.
  string(RANDOM LENGTH 8 tag)
  file(COPY_FILE ${library} ${folder}/lib/${name}.${tag})
  file(RENAME ${folder}/lib/${name}.${tag} ${folder}/lib/${name})
endforeach()
