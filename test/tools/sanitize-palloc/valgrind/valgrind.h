/* See memcheck.h beside it. */
#include <valgrind/memcheck.h>
