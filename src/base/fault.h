/*-------------------------------------------------------------------------
 *
 * fault.h
 *		Points at which a test build of the relay can be stopped.
 *
 * With OUTBOX_FAULTS defined (test/tools/private-install does so with
 * ASSERT=1), the relay looks at each point for a file "outbox_fault" in the data
 * directory, which holds "POINT ACTION NTH".  At the NTH time that this process
 * passes POINT it removes the file, so that the fault happens once whatever it
 * does; with NTH 0 the file stays, and the fault happens at each pass of each
 * process until the test removes it.  (Two points are in backends:
 * after_early_word, before a commit, and before_announce, between the moment at
 * which it is visible and its announcement; at the latter they may wait or nap, and
 * not fail.)  Then it
 *
 *		error	raises an ERROR
 *		fatal	raises a FATAL
 *		nap		waits for 5 ms
 *		wait	makes a file "outbox_fault.hit" and waits until that is gone,
 *				deaf to everything but SIGKILL, so that the test can do what
 *				it likes to a relay that is exactly here
 *		spin	the same, and never gives the processor up
 *
 * Of what the relay does to be safe, a test can have something left out, to see
 * that it would notice: OUTBOX_FAULT_LEAVES_OUT(what) is true while there is a
 * file "outbox_fault.WHAT".
 *
 *		fence		nothing is waited for on the disk before messages are sent
 *		latch		a commit does not wake the relay
 *		announce	a commit does not tell it anything
 *		patience	what is reported after a long time is reported at once
 *
 * In an ordinary build all of this is nothing.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_FAULT_H
#define OUTBOX_FAULT_H

#ifdef OUTBOX_FAULTS
extern void outbox_fault_point(const char *point);
extern bool outbox_fault_leaves_out(const char *what);
#define OUTBOX_FAULT(point) outbox_fault_point(point)
#define OUTBOX_FAULT_LEAVES_OUT(what) outbox_fault_leaves_out(what)
#else
#define OUTBOX_FAULT(point) ((void) 0)
#define OUTBOX_FAULT_LEAVES_OUT(what) false
#endif

#endif							/* OUTBOX_FAULT_H */
