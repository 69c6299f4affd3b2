/*-------------------------------------------------------------------------
 *
 * counting.c
 *		Preloaded into a server under callgrind: at SIGRTMIN + 5 a process writes what
 *		it has counted since the last time.
 *
 * (vgdb cannot ask for it: it hangs on a process that was forked and waits.)
 *
 *-------------------------------------------------------------------------
 */
#include <signal.h>
#include <stddef.h>
#include <valgrind/callgrind.h>

static void
dump(int signo)
{
	(void) signo;
	CALLGRIND_DUMP_STATS;
}

__attribute__((constructor)) static void
install(void)
{
	struct sigaction action = {.sa_handler = dump, .sa_flags = SA_RESTART};

	sigaction(SIGRTMIN + 5, &action, NULL);
}
