# SPDX-License-Identifier: BSD-3-Clause
# rpma_room(NAME [LINK target ...] SOURCES file ...): one room of src/ as a static library with hidden symbols.
# Shared libraries and unit tests are made of rooms.
function(rpma_room name)
    cmake_parse_arguments(room "" "" "SOURCES;LINK" ${ARGN})
    add_library(room_${name} STATIC ${room_SOURCES})
    target_include_directories(room_${name} PUBLIC ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
    target_link_libraries(room_${name} PUBLIC ${room_LINK})
endfunction()
