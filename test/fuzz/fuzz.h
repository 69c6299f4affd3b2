/*-------------------------------------------------------------------------
 *
 * fuzz.h
 *		What each fuzz target has, by the names that libFuzzer wants.
 *
 *-------------------------------------------------------------------------
 */
#ifndef FUZZ_H
#define FUZZ_H

#include <stddef.h>
#include <stdint.h>

extern int	LLVMFuzzerInitialize(int *argc, char ***argv);
extern int	LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
extern size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size,
									  unsigned int seed);
extern size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);

/* fuzz_link: how it is played, in front of what the broker says. */
#define FUZZ_LINK_HEAD	3

#endif							/* FUZZ_H */
