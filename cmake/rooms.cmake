# SPDX-License-Identifier: BSD-3-Clause
# rpma_room(NAME [LINK target ...] SOURCES file ...): one room of src/ as a static library with hidden symbols.
# Shared libraries and unit tests are made of rooms.
function(rpma_room name)
    cmake_parse_arguments(room "" "" "SOURCES;LINK" ${ARGN})
    add_library(room_${name} STATIC ${room_SOURCES})
    target_include_directories(room_${name} PUBLIC ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
    target_link_libraries(room_${name} PUBLIC ${room_LINK})
endfunction()

# rpma_optimise_whole(library room...): with RPMA_LTO, the linker optimises a library and the rooms of which it is made
# as one source. The objects hold machine code too: every other target links that code, which takes less time, and
# leaves --wrap and the order of objects as they are.
function(rpma_optimise_whole library)
    if(RPMA_LTO)
        foreach(room ${ARGN})
            target_compile_options(room_${room} PRIVATE -flto=auto -ffat-lto-objects)
        endforeach()
        target_link_options(${library} PRIVATE -flto)
    endif()
endfunction()
if(RPMA_LTO)
    add_link_options(-fno-lto)
endif()
