/*-------------------------------------------------------------------------
 *
 * hostile.h
 *		A broker that says what it was given, whatever the client says.
 *
 *-------------------------------------------------------------------------
 */
#ifndef FUZZ_HOSTILE_H
#define FUZZ_HOSTILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct FuzzScript
{
	const uint8_t *bytes;
	size_t		size;
	uint32_t	pieces;			/* how they are cut; 0: not at all */
	bool		tls;
	bool		reset;			/* ends in RST and not in FIN */
	bool		stays;			/* does not end */
} FuzzScript;

/* Listens, on a port of its own. */
extern int	fuzz_broker_start(void);

/*
 * Whoever connects from now on hears that; bytes must stay where they are until
 * fuzz_broker_end().  They are sent while the client receives or polls, a piece
 * each time, so that there is no other thread, and nothing that time decides.
 */
extern void fuzz_broker_play(const FuzzScript *script);
extern void fuzz_broker_end(void);

/* What is called now is of the broker, and not of the client. */
extern bool fuzz_broker_busy;

/* Bytes of the script that the client has not been sent. */
extern size_t fuzz_broker_left(void);

/* Bytes that it has sent since fuzz_broker_play(). */
extern size_t fuzz_broker_heard(void);

#endif							/* FUZZ_HOSTILE_H */
