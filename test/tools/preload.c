/*-------------------------------------------------------------------------
 *
 * preload.c
 *		What a test does to a server by way of its C library: another time of
 *		the wall clock, malloc() that fails, a disk that is slow to flush, and host
 *		names with two addresses.
 *
 * Preloaded into the postmaster (OutboxTest::Preload compiles it and says how);
 * its children inherit it.  What it does is said by the file that
 * OUTBOX_PRELOAD names, a struct Control, and can change at any time.
 *
 * The host "A-and-B", of two numeric addresses, has these, in this order, and the
 * host "A." what A has, also where no name server is asked.
 *
 * Only glibc: the real allocator is called by the names that it has there.
 *
 *-------------------------------------------------------------------------
 */
#define _GNU_SOURCE

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <netdb.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define CALLER __builtin_return_address(0)

enum
{
	OF_LIBRABBITMQ = 1,
	OF_OPENSSL = 2,
	OF_SERVER = 4				/* the program itself: palloc */
};

/* OutboxTest::Preload writes the first four. */
struct Control
{
	int64_t		clock_us;		/* added to the wall clock */
	int64_t		fail_nth;		/* allocation that fails; 0: none does */
	int64_t		fail_pid;		/* in this process; 0: any */
	int64_t		fail_callers;	/* of these OF_... */
	int64_t		count;			/* allocations so far */
	int64_t		failed;			/* how many failed */
	int64_t		flush_us;		/* each flush to the disk takes so much longer */
};

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *p, size_t size);

static struct Control nothing;
static struct Control *control = &nothing;
static int	(*real_clock_gettime) (clockid_t, struct timespec *);

/* Where the code of the callers is, as far as it is loaded. */
#define MAX_RANGES 8
static struct
{
	int			what;
	uintptr_t	lo,
				hi;
}			ranges[MAX_RANGES];
static int	nranges;
static int	known;				/* OF_... that are among them */

static int
classify(const char *name)
{
	if (name[0] == '\0')
		return OF_SERVER;
	if (strstr(name, "librabbitmq") != NULL)
		return OF_LIBRABBITMQ;
	if (strstr(name, "libssl") != NULL || strstr(name, "libcrypto") != NULL)
		return OF_OPENSSL;
	return 0;
}

static int
note_object(struct dl_phdr_info *info, size_t size, void *arg)
{
	int			what = classify(info->dlpi_name);

	(void) size;
	(void) arg;
	for (int i = 0; what != 0 && i < info->dlpi_phnum; i++)
	{
		const ElfW(Phdr) * segment = &info->dlpi_phdr[i];

		if (segment->p_type != PT_LOAD || !(segment->p_flags & PF_X) ||
			nranges == MAX_RANGES)
			continue;
		ranges[nranges].what = what;
		ranges[nranges].lo = info->dlpi_addr + segment->p_vaddr;
		ranges[nranges].hi = ranges[nranges].lo + segment->p_memsz;
		nranges++;
		known |= what;
	}
	return 0;
}

static int
caller_is(const void *caller, int64_t callers)
{
	if ((known & callers) != callers)
	{
		nranges = 0;
		(void) dl_iterate_phdr(note_object, NULL);
	}
	for (int i = 0; i < nranges; i++)
		if ((uintptr_t) caller >= ranges[i].lo &&
			(uintptr_t) caller < ranges[i].hi)
			return (ranges[i].what & callers) != 0;
	return 0;
}

static int
fails(const void *caller)
{
	int64_t		nth = control->fail_nth;

	if (nth == 0 ||
		(control->fail_pid != 0 && control->fail_pid != getpid()) ||
		!caller_is(caller, control->fail_callers) ||
		__atomic_add_fetch(&control->count, 1, __ATOMIC_RELAXED) != nth)
		return 0;
	__atomic_add_fetch(&control->failed, 1, __ATOMIC_RELAXED);
	errno = ENOMEM;
	return 1;
}

/* ------------------------------------------------------------------- flushes */

static int
flush(const char *name, int fd)
{
	int			(*real) (int) = (int (*) (int)) dlsym(RTLD_NEXT, name);
	struct timespec left = {control->flush_us / 1000000,
	control->flush_us % 1000000 * 1000};

	/* a process in a flush hears of no signal until it is over */
	while (control->flush_us > 0 && nanosleep(&left, &left) != 0 && errno == EINTR)
		;
	return real(fd);
}

EXPORT int
fsync(int fd)
{
	return flush("fsync", fd);
}

EXPORT int
fdatasync(int fd)
{
	return flush("fdatasync", fd);
}

/* --------------------------------------------------------------- allocations */

EXPORT void *
malloc(size_t size)
{
	return fails(CALLER) ? NULL : __libc_malloc(size);
}

EXPORT void *
calloc(size_t n, size_t size)
{
	return fails(CALLER) ? NULL : __libc_calloc(n, size);
}

EXPORT void *
realloc(void *p, size_t size)
{
	return fails(CALLER) ? NULL : __libc_realloc(p, size);
}

EXPORT int
clock_gettime(clockid_t id, struct timespec *now)
{
	int			rc = real_clock_gettime(id, now);
	int64_t		us = control->clock_us;

	if (rc == 0 && us != 0 &&
		(id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE))
		now->tv_sec += us / 1000000;	/* whole seconds only */
	return rc;
}

EXPORT int
gettimeofday(struct timeval *restrict now, void *restrict zone)
{
	struct timespec ts;

	(void) zone;
	if (clock_gettime(CLOCK_REALTIME, &ts) != 0)
		return -1;
	now->tv_sec = ts.tv_sec;
	now->tv_usec = ts.tv_nsec / 1000;
	return 0;
}

EXPORT time_t
time(time_t *result)
{
	struct timespec ts;

	(void) clock_gettime(CLOCK_REALTIME, &ts);
	if (result != NULL)
		*result = ts.tv_sec;
	return ts.tv_sec;
}

static void __attribute__((constructor))
start(void)
{
	const char *path = getenv("OUTBOX_PRELOAD");
	int			fd = path != NULL ? open(path, O_RDWR | O_CLOEXEC) : -1;
	void	   *map;

	*(void **) &real_clock_gettime = dlsym(RTLD_NEXT, "clock_gettime");
	if (fd < 0)
		return;
	map = mmap(NULL, sizeof(struct Control), PROT_READ | PROT_WRITE,
			   MAP_SHARED, fd, 0);
	(void) close(fd);
	if (map != MAP_FAILED)
		control = map;
}

EXPORT int
getaddrinfo(const char *node, const char *service,
			const struct addrinfo *hints, struct addrinfo **result)
{
	int			(*next) (const char *, const char *, const struct addrinfo *,
						 struct addrinfo **) = dlsym(RTLD_NEXT, "getaddrinfo");
	const char *and = node != NULL ? strstr(node, "-and-") : NULL;
	struct addrinfo *last;
	char	   *first;
	int			rc;
	size_t		len = node == NULL ? 0 : and != NULL ? (size_t) (and - node) : strlen(node);

	if (and == NULL && (len < 2 || node[len - 1] != '.'))
		return next(node, service, hints, result);
	first = strndup(node, and != NULL ? len : len - 1);
	if (first == NULL)
		return EAI_MEMORY;
	rc = next(first, service, hints, result);
	free(first);
	if (rc != 0 || and == NULL)
		return rc;
	/* each is a list of its own, and freeaddrinfo() frees them one by one */
	for (last = *result; last->ai_next != NULL;)
		last = last->ai_next;
	rc = next(and + strlen("-and-"), service, hints, &last->ai_next);
	if (rc != 0)
		freeaddrinfo(*result);
	return rc;
}
