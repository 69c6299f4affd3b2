/*-------------------------------------------------------------------------
 *
 * test_point.h
 *		Points at which a test build of the relay can be stopped.
 *
 * With OUTBOX_TEST_POINTS defined (test/tools/private-install does so with ASSERT=1),
 * the relay looks at each point for a file "outbox_test_point" in the data directory,
 * which holds "POINT ACTION NTH".  At the NTH time that this process passes POINT it
 * removes the file, so that the action happens once whatever it does; with NTH 0 the
 * file stays, and the action happens at each pass of each process until the test
 * removes it. (Two points are in backends: after_commit_intent, before a commit, and
 * before_announce, between the moment at which it is visible and its announcement; at
 * the latter they may wait or nap, and not fail.) Then it
 *
 *		error	raises an ERROR
 *		fatal	raises a FATAL
 *		nap		waits for 5 ms
 *		wait	makes a file "outbox_test_point.hit" and waits until that is gone,
 *				ignoring every signal but SIGKILL, so that the test can do what
 *				it likes to a relay that is exactly here
 *		spin	the same, and never gives the processor up
 *
 * Of what the relay does to be safe, a test can have something left out, to see
 * that it would notice: OUTBOX_TEST_OMITS(what) is true while there is a
 * file "outbox_test_point.WHAT".
 *
 *		fence		nothing is waited for on the disk before messages are sent
 *		latch		a commit does not wake the relay
 *		announce	a commit does not tell it anything
 *		patience	what is reported after a long time is reported at once
 *		lock		a worker starts although its database is locked, as if the lock came later
 *
 * In an ordinary build all of this is nothing.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_TEST_POINT_H
#define OUTBOX_TEST_POINT_H

#ifdef OUTBOX_TEST_POINTS
extern void outbox_test_point(const char *point);
extern bool outbox_test_omits(const char *what);
#define OUTBOX_TEST_POINT(point) outbox_test_point(point)
#define OUTBOX_TEST_OMITS(what) outbox_test_omits(what)
#else
#define OUTBOX_TEST_POINT(point) ((void) 0)
#define OUTBOX_TEST_OMITS(what) false
#endif

#endif							/* OUTBOX_TEST_POINT_H */
