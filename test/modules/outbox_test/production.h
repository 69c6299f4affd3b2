/*-------------------------------------------------------------------------
 *
 * production.h
 *		What the module adds to the relay's own store.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_TEST_PRODUCTION_H
#define OUTBOX_TEST_PRODUCTION_H

/* Makes the store use this database's outbox; needs an SPI connection. */
extern void outbox_test_attach(void);
extern char *outbox_test_claim_way_now(void);

#endif							/* OUTBOX_TEST_PRODUCTION_H */
