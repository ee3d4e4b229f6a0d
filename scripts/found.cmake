# Read by every preset: takes over what scripts/setup.sh found, if it has run.
include("${CMAKE_CURRENT_LIST_DIR}/../build/setup.cmake" OPTIONAL)
