/*-------------------------------------------------------------------------
 *
 * main.c
 *		sim: runs histories.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <time.h>

#include "sim.h"

#undef printf
#undef fprintf
#undef snprintf
#undef strerror

static void
usage(void)
{
	printf("usage: sim [--seed N] [--seconds S] [--histories N]    random histories\n"
		   "       sim --only N [-v]                               the one of that seed\n"
		   "       sim --replay FILE... [-v]                       histories in files\n"
		   "       sim --explore [--seconds S] [--full]            all of small worlds\n"
		   "       sim --steps                                     what a step can be\n"
		   "A history that breaks a promise is made short and printed; with --out FILE it\n"
		   "goes there, too.  -v says all that happens.\n");
}

static double
seconds_now(void)
{
	struct timespec now;

	(void) clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	return now.tv_sec + now.tv_nsec / 1e9;
}

static const char *out;

static void
report(SimHistory *history, const char *where, unsigned long long seed)
{
	SimVerdict	verdict = sim_verdict;

	printf("BROKEN %s", verdict.check);
	if (where != NULL)
		printf(" in %s", where);
	else
		printf(" with seed %llu", seed);
	printf(": %s\n", verdict.text);
	if (where == NULL)
	{
		int			before = history->nsteps;

		sim_history_shrink(history);
		printf("# %d steps of %d are enough; save them and run sim --replay FILE -v\n",
			   history->nsteps, before);
		sim_history_write(history, stdout, &sim_verdict);
	}
	fflush(stdout);
	if (out != NULL)
	{
		FILE	   *file = fopen(out, "w");

		if (file != NULL)
		{
			sim_history_write(history, file, &sim_verdict);
			fclose(file);
		}
	}
}

static int
replay(char **paths, int n)
{
	SimHistory	history = {0};
	int			failed = 0;

	for (int i = 0; i < n; i++)
	{
		if (!sim_history_read(&history, paths[i]))
			return 2;
		sim_history_replay(&history);
		if (!sim_verdict.failed)
			continue;
		failed++;
		report(&history, paths[i], 0);
	}
	printf("sim: %d of %d histories in files hold\n", n - failed, n);
	return failed > 0;
}

static int
random_histories(uint64 seed, double seconds, long histories)
{
	SimHistory	history = {0};
	double		start = seconds_now();
	double		took;
	long		steps = 0;
	long		sent = 0;
	long		n = 0;

	printf("sim: random histories from seed %llu\n", (unsigned long long) seed);
	fflush(stdout);
	while (histories > 0 ? n < histories : seconds_now() - start < seconds)
	{
		sim_history_draw(&history, seed + n);
		n++;
		steps += sim_verdict.steps;
		sent += sim_verdict.sent;
		if (sim_verdict.failed)
		{
			report(&history, NULL, (unsigned long long) (seed + n - 1));
			printf("sim: found in history %ld, after %.1f s\n", n, seconds_now() - start);
			return 1;
		}
	}
	took = seconds_now() - start;
	printf("sim: %ld histories, %ld steps, %ld messages published, all promises kept; %.0f steps a second\n",
		   n, steps, sent, steps / Max(took, 0.001));
	return 0;
}

int
main(int argc, char **argv)
{
	uint64		seed = (uint64) time(NULL) * 1000000;
	double		seconds = 10;
	long		histories = 0;
	char	  **paths = NULL;
	int			npaths = 0;
	bool		only = false;
	bool		explore = false;
	bool		full = false;

	for (int i = 1; i < argc; i++)
	{
		const char *arg = argv[i];
		const char *value = i + 1 < argc ? argv[i + 1] : "";

		if (strcmp(arg, "-v") == 0)
			sim_verbose = true;
		else if (strcmp(arg, "--seed") == 0 || strcmp(arg, "--only") == 0)
		{
			only = strcmp(arg, "--only") == 0;
			seed = strtoull(value, NULL, 10);
			i++;
		}
		else if (strcmp(arg, "--seconds") == 0)
		{
			seconds = atof(value);
			i++;
		}
		else if (strcmp(arg, "--histories") == 0)
		{
			histories = atol(value);
			i++;
		}
		else if (strcmp(arg, "--out") == 0)
		{
			out = value;
			i++;
		}
		else if (strcmp(arg, "--explore") == 0)
			explore = true;
		else if (strcmp(arg, "--full") == 0)
			full = true;
		else if (strcmp(arg, "--steps") == 0)
		{
#define SIM_OP(name, help) printf("%-18s %s\n", #name, help);
			SIM_OPS(SIM_OP)
#undef SIM_OP
			return 0;
		}
		else if (strcmp(arg, "--replay") == 0)
		{
			paths = &argv[i + 1];
			while (i + 1 < argc && argv[i + 1][0] != '-')
			{
				npaths++;
				i++;
			}
		}
		else
		{
			usage();
			return 2;
		}
	}
	if (paths != NULL)
		return replay(paths, npaths);
	if (explore)
		return sim_explore(seconds, full) ? 0 : 1;
	return random_histories(seed, seconds, only ? 1 : histories);
}
