/*
 * valgrind/memcheck.h, of which there is a real one: this is what stands in its
 * place where a server is built for AddressSanitizer (test/tools/sanitize).
 *
 * A server built with USE_VALGRIND tells valgrind what palloc() has given out and
 * what is free; without it, palloc() hides all that from a sanitizer, which sees
 * nothing but the blocks of malloc().  Here the sanitizer is told instead: bytes
 * that nobody may touch are poisoned.  What valgrind knows beyond that (which bytes
 * are defined) has no counterpart, and is left out.
 *
 * Poison is a process's own, also of shared memory, as valgrind's bits are.
 */
#ifndef OUTBOX_SANITIZE_MEMCHECK_H
#define OUTBOX_SANITIZE_MEMCHECK_H

#include <sanitizer/asan_interface.h>

#define VALGRIND_MAKE_MEM_NOACCESS(addr, size)	__asan_poison_memory_region((addr), (size))
#define VALGRIND_MAKE_MEM_UNDEFINED(addr, size) __asan_unpoison_memory_region((addr), (size))
#define VALGRIND_MAKE_MEM_DEFINED(addr, size)	__asan_unpoison_memory_region((addr), (size))
#define VALGRIND_MAKE_MEM_DEFINED_IF_ADDRESSABLE(addr, size) do {} while (0)
#define VALGRIND_CHECK_MEM_IS_DEFINED(addr, size)	0
#define VALGRIND_CHECK_MEM_IS_ADDRESSABLE(addr, size)	0

#define VALGRIND_MEMPOOL_ALLOC(pool, addr, size) __asan_unpoison_memory_region((addr), (size))
#define VALGRIND_MEMPOOL_CHANGE(pool, old, new_addr, size) \
	__asan_unpoison_memory_region((new_addr), (size))
/* What is freed has been poisoned already: CLOBBER_FREED_MEMORY's wipe_mem(). */
#define VALGRIND_MEMPOOL_FREE(pool, addr)		do {} while (0)
#define VALGRIND_MEMPOOL_TRIM(pool, addr, size) do {} while (0)
#define VALGRIND_CREATE_MEMPOOL(pool, redzone, zeroed) do {} while (0)
#define VALGRIND_CREATE_MEMPOOL_EXT(pool, redzone, zeroed, flags) do {} while (0)
#define VALGRIND_DESTROY_MEMPOOL(pool)			do {} while (0)

/* What valgrind.h has, which newer servers include by itself. */
#define RUNNING_ON_VALGRIND 0
#define VALGRIND_COUNT_ERRORS 0
#define VALGRIND_PRINTF(...)	do {} while (0)
#define VALGRIND_DISABLE_ERROR_REPORTING do {} while (0)
#define VALGRIND_ENABLE_ERROR_REPORTING do {} while (0)

#endif
