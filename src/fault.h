/*-------------------------------------------------------------------------
 *
 * fault.h
 *		Points at which a test build of the relay can be stopped.
 *
 * With OUTBOX_FAULTS defined (test/tools/private-install does so with
 * ASSERT=1), the relay looks at each point for a file "outbox_fault" in the data
 * directory, which holds "POINT ACTION NTH".  At the NTH time that this process
 * passes POINT it removes the file, so that the fault happens once whatever it
 * does, and then
 *
 *		error	raises an ERROR
 *		fatal	raises a FATAL
 *		wait	makes a file "outbox_fault.hit" and waits until that is gone,
 *				deaf to everything but SIGKILL, so that the test can do what
 *				it likes to a relay that is exactly here
 *
 * In an ordinary build the points are nothing.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_FAULT_H
#define OUTBOX_FAULT_H

#ifdef OUTBOX_FAULTS
extern void outbox_fault_point(const char *point);
#define OUTBOX_FAULT(point) outbox_fault_point(point)
#else
#define OUTBOX_FAULT(point) ((void) 0)
#endif

#endif							/* OUTBOX_FAULT_H */
