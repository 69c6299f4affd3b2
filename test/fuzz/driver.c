/*-------------------------------------------------------------------------
 *
 * driver.c
 *		Runs a fuzz target where there is no libFuzzer.
 *
 * Takes what run-target gives to libFuzzer: -max_total_time=, -max_len=,
 * -artifact_prefix=, directories.  Inputs are those of the directories, and changes of
 * them, by the target's own mutator if it has one.  OUTBOX_SEED repeats a run.
 *
 *-------------------------------------------------------------------------
 */
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "fuzz.h"

#define SEEDS	4096

#pragma weak LLVMFuzzerCustomMutator

typedef struct Seed
{
	uint8_t    *bytes;
	size_t		size;
} Seed;

static Seed seeds[SEEDS];
static int	nseeds;
static uint64_t state;
static size_t max_size = 4096;
static const char *prefix = "";
static uint8_t *current;		/* written out when the process is aborted */
static size_t current_size;

static uint32_t
draw(uint32_t n)
{
	state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (uint32_t) (state >> 33) % n;
}

/* One to four changes of bytes. */
size_t
LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max)
{
	for (int n = 1 + draw(4); n > 0; n--)
	{
		size_t		at = size > 0 ? draw(size) : 0;
		size_t		len = 1 + draw(8);

		switch (draw(5))
		{
			case 0:
				if (size > 0)
					data[at] ^= 1 << draw(8);
				break;
			case 1:
				if (size > 0)
					data[at] = draw(256);
				break;
			case 2:				/* taken out */
				if (len < size - at)
				{
					memmove(data + at, data + at + len, size - at - len);
					size -= len;
				}
				break;
			case 3:				/* put in */
				if (size + len <= max)
				{
					memmove(data + at + len, data + at, size - at);
					memset(data + at, draw(256), len);
					size += len;
				}
				break;
			default:			/* said twice */
				if (len < size - at && size + len <= max)
				{
					memmove(data + at + len, data + at, size - at);
					size += len;
				}
		}
	}
	return size;
}

static void
read_seeds(const char *directory)
{
	DIR		   *dir = opendir(directory);
	struct dirent *entry;

	if (dir == NULL)
		return;
	while ((entry = readdir(dir)) != NULL && nseeds < SEEDS)
	{
		char		path[4096];
		FILE	   *file;
		Seed	   *seed = &seeds[nseeds];

		(void) snprintf(path, sizeof(path), "%s/%s", directory, entry->d_name);
		file = entry->d_name[0] != '.' ? fopen(path, "rb") : NULL;
		if (file == NULL)
			continue;
		seed->bytes = malloc(max_size);
		if (seed->bytes == NULL)
			exit(2);
		seed->size = fread(seed->bytes, 1, max_size, file);
		fclose(file);
		nseeds++;
	}
	closedir(dir);
}

static void
keep_input(int signo)
{
	char		path[4096];
	FILE	   *file;

	signal(signo, SIG_DFL);
	(void) snprintf(path, sizeof(path), "%scrash", prefix);
	file = fopen(path, "wb");
	if (file != NULL)
	{
		(void) fwrite(current, 1, current_size, file);
		fclose(file);
	}
	raise(signo);
}

static void
run(const uint8_t *bytes, size_t size)
{
	/* as large as it is, so that whoever reads on is seen */
	uint8_t    *exact = malloc(size + (size == 0));

	if (exact == NULL)
		exit(2);
	memcpy(exact, bytes, size);
	current = exact;
	current_size = size;
	(void) LLVMFuzzerTestOneInput(exact, size);
	free(exact);
}

int
main(int argc, char **argv)
{
	long		seconds = 10;
	time_t		end;
	unsigned long n = 0;
	const char *seed = getenv("OUTBOX_SEED");
	uint8_t    *bytes;

	state = seed != NULL ? strtoull(seed, NULL, 10) : (uint64_t) time(NULL);
	printf("seed %llu\n", (unsigned long long) state);
	for (int i = 1; i < argc; i++)
	{
		if (strncmp(argv[i], "-max_total_time=", 16) == 0)
			seconds = atol(argv[i] + 16);
		else if (strncmp(argv[i], "-max_len=", 9) == 0)
			max_size = strtoul(argv[i] + 9, NULL, 10);
		else if (strncmp(argv[i], "-artifact_prefix=", 17) == 0)
			prefix = argv[i] + 17;
	}
	bytes = malloc(max_size);
	if (bytes == NULL)
		exit(2);
	for (int i = 1; i < argc; i++)
		if (argv[i][0] != '-')
			read_seeds(argv[i]);
	signal(SIGABRT, keep_input);
	(void) LLVMFuzzerInitialize(&argc, &argv);
	for (int i = 0; i < nseeds; i++, n++)
		run(seeds[i].bytes, seeds[i].size);
	for (end = time(NULL) + seconds; time(NULL) < end; n++)
	{
		size_t		size = 0;

		if (nseeds > 0)
		{
			const Seed *from = &seeds[draw(nseeds)];

			size = from->size;
			memcpy(bytes, from->bytes, size);
		}
		size = LLVMFuzzerCustomMutator != NULL ?
			LLVMFuzzerCustomMutator(bytes, size, max_size, draw(UINT32_MAX)) :
			LLVMFuzzerMutate(bytes, size, max_size);
		run(bytes, size);
	}
	free(bytes);
	printf("stat::number_of_executed_units: %lu\n", n);
	return 0;
}
