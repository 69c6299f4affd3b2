/*-------------------------------------------------------------------------
 *
 * history.c
 *		Histories: drawn from a seed, written, read, replayed, and made short.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "sim.h"

#undef fprintf
#undef snprintf
#undef printf
#undef strerror

const char *const sim_op_names[OP_COUNT] = {
#define SIM_OP(name, help) #name,
	SIM_OPS(SIM_OP)
#undef SIM_OP
};

const char *const sim_call_names[CALL_COUNT] = {
#define SIM_CALL(name) #name,
	SIM_CALLS(SIM_CALL)
#undef SIM_CALL
};

void
sim_history_add(SimHistory *history, const SimStep *step)
{
	if (history->nsteps >= history->max)
	{
		history->max = Max(2 * history->max, 256);
		history->steps = realloc(history->steps, sizeof(SimStep) * history->max);
	}
	history->steps[history->nsteps++] = *step;
}

/* ------------------------------------------------------------------- replay */

static const SimHistory *replayed;
static int	replay_at;

static bool
next_replayed(SimStep *step)
{
	if (replay_at >= replayed->nsteps)
		return false;
	*step = replayed->steps[replay_at++];
	return true;
}

void
sim_history_replay(const SimHistory *history)
{
	replayed = history;
	replay_at = 0;
	sim_run(&history->config, next_replayed);
}

/* -------------------------------------------------------------------- files */

static const struct
{
	const char *name;
	size_t		offset;
	int			count;
}			config_fields[] =
{
	{"window", offsetof(SimConfig, window), 1},
	{"poll_ms", offsetof(SimConfig, poll_ms), 1},
	{"sweep_ms", offsetof(SimConfig, sweep_ms), 1},
	{"merge", offsetof(SimConfig, merge), 1},
	{"waiting", offsetof(SimConfig, waiting), 1},
	{"held", offsetof(SimConfig, held), 1},
	{"retry_ms", offsetof(SimConfig, retry_ms), 1},
	{"retry_max_ms", offsetof(SimConfig, retry_max_ms), 1},
	{"confirm_ms", offsetof(SimConfig, confirm_ms), 1},
	{"standby", offsetof(SimConfig, standby), 1},
	{"alike", offsetof(SimConfig, alike), 1},
	{"slow_declares", offsetof(SimConfig, slow_declares), 1},
	{"ordered", offsetof(SimConfig, ordered), SIM_ROUTES},
	{"block", offsetof(SimConfig, block), SIM_ROUTES},
	{"max_attempts", offsetof(SimConfig, max_attempts), SIM_ROUTES},
	{"failed_route", offsetof(SimConfig, failed_route), SIM_ROUTES},
};

static int *
config_field(SimConfig *config, int i)
{
	return (int *) ((char *) config + config_fields[i].offset);
}

void
sim_history_write(const SimHistory *history, FILE *file, const SimVerdict *verdict)
{
	SimConfig	config = history->config;

	if (verdict != NULL && verdict->failed)
		fprintf(file, "# %s: %s\n", verdict->check, verdict->text);
	fprintf(file, "seed %llu\n", (unsigned long long) config.seed);
	for (int i = 0; i < (int) lengthof(config_fields); i++)
	{
		fprintf(file, "%s", config_fields[i].name);
		for (int j = 0; j < config_fields[i].count; j++)
			fprintf(file, " %d", config_field(&config, i)[j]);
		fprintf(file, "\n");
	}
	for (int i = 0; i < history->nsteps; i++)
	{
		const SimStep *step = &history->steps[i];
		int			last = SIM_ARGS;

		while (last > 0 && step->arg[last - 1] == 0)
			last--;
		fprintf(file, "%s", sim_op_names[step->op]);
		for (int j = 0; j < last; j++)
			if (step->op == OP_fail && j == 0)
				fprintf(file, " %s", sim_call_names[step->arg[0]]);
			else
				fprintf(file, " %d", step->arg[j]);
		if (step->op == OP_fail && last == 0)
			fprintf(file, " %s", sim_call_names[0]);
		fprintf(file, "\n");
	}
}

static int
find_name(const char *name, const char *const *names, int n)
{
	for (int i = 0; i < n; i++)
		if (strcmp(name, names[i]) == 0)
			return i;
	return -1;
}

/* false: not a word of it is known. */
static bool
read_line(SimHistory *history, char *line)
{
	char	   *word = strtok(line, " \t\r\n");
	SimStep		step;
	int			op;

	if (word == NULL || word[0] == '#')
		return true;
	if (strcmp(word, "seed") == 0)
	{
		word = strtok(NULL, " \t\r\n");
		history->config.seed = word != NULL ? strtoull(word, NULL, 10) : 0;
		return true;
	}
	/* "block" is both: the configuration comes first. */
	for (int i = 0; i < (int) lengthof(config_fields) && history->nsteps == 0; i++)
		if (strcmp(word, config_fields[i].name) == 0)
		{
			for (int j = 0; j < config_fields[i].count &&
				 (word = strtok(NULL, " \t\r\n")) != NULL; j++)
				config_field(&history->config, i)[j] = atoi(word);
			return true;
		}
	op = find_name(word, sim_op_names, OP_COUNT);
	if (op < 0)
		return false;
	memset(&step, 0, sizeof(step));
	step.op = op;
	for (int j = 0; j < SIM_ARGS && (word = strtok(NULL, " \t\r\n")) != NULL; j++)
	{
		int			call = find_name(word, sim_call_names, CALL_COUNT);

		step.arg[j] = call >= 0 ? call : atoi(word);
	}
	sim_history_add(history, &step);
	return true;
}

bool
sim_history_read(SimHistory *history, const char *path)
{
	FILE	   *file = fopen(path, "r");
	char		line[256];
	int			number = 0;

	history->nsteps = 0;
	memset(&history->config, 0, sizeof(history->config));
	if (file == NULL)
	{
		fprintf(stderr, "sim: %s cannot be read\n", path);
		return false;
	}
	while (fgets(line, sizeof(line), file) != NULL)
	{
		number++;
		if (!read_line(history, line))
		{
			fprintf(stderr, "sim: %s:%d is no step\n", path, number);
			fclose(file);
			return false;
		}
	}
	fclose(file);
	return true;
}

/* ------------------------------------------------------------------ drawing */

static struct
{
	SimHistory *history;
	uint64		random;
	int			left;			/* steps */
	int			next_label;
	int			next_gid;
	int			keys;
	int			routes;
	int			labels_back;	/* how far back rows are chosen */
	int			weight[OP_COUNT];
	int			total;
	int			pass;			/* of a hundred points, how many pass in a row */
	int			bulk;			/* rows to come before everything else */
	int			bulk_backend;
	bool		sizes;
	int			due;			/* of a hundred rows, how many are scheduled */
	bool		declares;		/* more exchanges are missing */
}			draw;

static int
below(int n)
{
	return n <= 1 ? 0 : (int) (((uint64) sim_random(&draw.random) * n) >> 32);
}

static bool
chance(int percent)
{
	return below(100) < percent;
}

static int
a_label(void)
{
	int			back = Min(draw.labels_back, draw.next_label - 1);

	return back <= 0 ? 0 : draw.next_label - 1 - below(back);
}

static int
an_outstanding(void)
{
	SimRow	   *rows[64];
	int			n = sim_link_outstanding(rows, lengthof(rows));

	return n == 0 ? 0 : rows[below(n)]->label;
}

/* One that cannot be read, rather. */
static int
an_unreadable(void)
{
	for (int i = 0; i < sim_nrows; i++)
	{
		SimVersion *current = sim_row_current(sim_rows[i]);

		if (current != NULL && current->unreadable && chance(50))
			return sim_rows[i]->label;
	}
	return a_label();
}

static int
a_failed(void)
{
	for (int i = 0; i < sim_nrows; i++)
	{
		SimVersion *current = sim_row_current(sim_rows[i]);

		if (current != NULL && current->failed && chance(50))
			return sim_rows[i]->label;
	}
	return a_label();
}

/* A backend in such a phase, or -1; idle: one without a transaction. */
static int
a_backend(int low, int high, bool idle)
{
	int			start = below(SIM_BACKENDS);

	for (int i = 0; i < SIM_BACKENDS; i++)
	{
		int			p = (start + i) % SIM_BACKENDS;
		const SimBackend *backend = &sim_backends[p];

		if (idle ? backend->tx == 0 :
			backend->tx != 0 && backend->phase >= low && backend->phase <= high)
			return p;
	}
	return -1;
}

static void
fill_row(SimStep *step, int p)
{
	step->arg[0] = p;
	step->arg[1] = draw.next_label++;
	step->arg[2] = chance(25) ? 0 : 1 + below(draw.keys);
	step->arg[3] = below(draw.routes);
	step->arg[4] = step->op == OP_row && chance(draw.due) ? 1 + below(3000) : 0;
	step->arg[5] = draw.sizes && chance(30) ? 1 + below(4096) : 0;
}

/* Fills in what a step is about; false: there is nothing it could be. */
static bool
fill_step(SimStep *step)
{
	int			p;

	switch (step->op)
	{
		case OP_relay:
			step->arg[0] = chance(draw.pass) ? 1 + below(30) : 1;
			return true;
		case OP_time:
			step->arg[0] = chance(70) ? 1 + below(20) : 1 + below(1500);
			return true;
		case OP_begin:
			p = a_backend(0, 0, true);
			step->arg[0] = p;
			step->arg[1] = chance(40);
			return p >= 0;
		case OP_row:
		case OP_silent:
			p = a_backend(0, 0, false);
			if (p < 0)
				return false;
			fill_row(step, p);
			return true;
		case OP_word:
		case OP_gap:
		case OP_prepare:
		case OP_pause:
		case OP_pause_all:
		case OP_resume:
		case OP_resume_all:
		case OP_exchange:
		case OP_order:
		case OP_pipeline:
		case OP_unorder:
		case OP_hold:
		case OP_skip:
			p = a_backend(0, 0, false);
			step->arg[0] = p;
			if (step->op == OP_prepare)
				step->arg[1] = draw.next_gid++;
			else if (step->op == OP_pause || step->op == OP_resume ||
					 step->op == OP_exchange || step->op == OP_order || step->op == OP_pipeline ||
					 step->op == OP_unorder || step->op == OP_hold || step->op == OP_skip)
				step->arg[1] = below(draw.routes);
			return p >= 0;
		case OP_commit:
		case OP_abort:
			p = a_backend(0, 1, false);
			step->arg[0] = p;
			return p >= 0;
		case OP_announce:
			p = a_backend(2, 3, false);
			if (p < 0)
				p = a_backend(0, 1, false);
			step->arg[0] = p;
			return p >= 0;
		case OP_commit_prepared:
		case OP_rollback_prepared:
			return sim_prepared_next(&step->arg[0]);
		case OP_lock:
		case OP_touch:
		case OP_requeue:
		case OP_discard:
		case OP_remove:
			p = a_backend(0, 0, false);
			step->arg[0] = p;
			step->arg[1] = step->op == OP_requeue ? a_failed() :
				step->op == OP_lock ? a_label() : an_unreadable();
			return p >= 0 && step->arg[1] != 0;
		case OP_spoil:
			step->arg[0] = a_label();
			return step->arg[0] != 0;
		case OP_truncate:
			step->arg[0] = chance(50);
			return true;
		case OP_number:
			step->arg[0] = Max((int) sim_next_seq - below(8), 1) + (chance(10) ? 1000 : 0);
			return true;
		case OP_ack:
		case OP_nack:
		case OP_bounce:
			step->arg[0] = an_outstanding();
			step->arg[1] = step->op != OP_bounce && chance(30);
			return step->arg[0] != 0;
		case OP_close:
			step->arg[0] = below(3);
			return true;
		case OP_fail:
			step->arg[0] = draw.declares && chance(50) ? CALL_declare : below(CALL_COUNT);
			step->arg[1] = 1 + below(step->arg[0] == CALL_statement ? 12 : 3);
			return true;
		case OP_enable:
			step->arg[0] = chance(60);
			return true;
		default:
			return true;
	}
}

static bool
next_drawn(SimStep *step)
{
	if (draw.left <= 0)
		return false;
	draw.left--;
	memset(step, 0, sizeof(*step));
	if (draw.bulk > 0)
	{
		draw.bulk--;
		step->op = sim_backends[0].tx == 0 ? OP_begin :
			draw.bulk == 0 ? OP_announce : OP_row;
		if (step->op == OP_row)
			fill_row(step, 0);
		sim_history_add(draw.history, step);
		return true;
	}
	for (int tries = 0; tries < 8; tries++)
	{
		int			r = below(draw.total);
		int			op = 0;

		while (r >= draw.weight[op])
			r -= draw.weight[op++];
		memset(step, 0, sizeof(*step));
		step->op = op;
		if (fill_step(step))
		{
			sim_history_add(draw.history, step);
			return true;
		}
	}
	memset(step, 0, sizeof(*step));
	step->op = OP_relay;
	step->arg[0] = 1;
	sim_history_add(draw.history, step);
	return true;
}

/* What happens often, and what now and then. */
static const struct
{
	SimOp		op;
	int			often;
	int			percent;		/* of the histories that have it at all */
}			mixture[] =
{
	{OP_relay, 300, 100},
	{OP_time, 10, 70},
	{OP_begin, 40, 100},
	{OP_row, 60, 100},
	{OP_gap, 4, 50},
	{OP_word, 20, 80},
	{OP_commit, 25, 100},
	{OP_announce, 40, 100},
	{OP_abort, 5, 60},
	{OP_prepare, 6, 40},
	{OP_commit_prepared, 8, 100},
	{OP_rollback_prepared, 2, 100},
	{OP_lock, 6, 50},
	{OP_touch, 4, 30},
	{OP_requeue, 6, 50},
	{OP_discard, 4, 40},
	{OP_remove, 2, 20},
	{OP_pause, 3, 30},
	{OP_resume, 4, 40},
	{OP_hold, 3, 30},
	{OP_order, 2, 15},
	{OP_pipeline, 2, 15},
	{OP_skip, 2, 25},
	{OP_pause_all, 1, 15},
	{OP_resume_all, 2, 50},
	{OP_truncate, 1, 4},
	{OP_number, 3, 0},
	{OP_flush, 6, 60},
	{OP_ack, 70, 100},
	{OP_nack, 6, 60},
	{OP_bounce, 5, 50},
	{OP_drop, 3, 40},
	{OP_close, 3, 30},
	{OP_block, 4, 25},
	{OP_unblock, 8, 100},
	{OP_fail, 6, 50},
	{OP_error, 2, 30},
	{OP_kill, 1, 20},
	{OP_stop, 1, 15},
	{OP_restart, 1, 10},
	{OP_enable, 1, 10},
	{OP_crash, 2, 35},
};

static void
draw_config(SimConfig *config)
{
	static const int windows[] = {1, 2, 2, 3, 4, 4, 8, 16, 64, 100};

	memset(config, 0, sizeof(*config));
	config->seed = ((uint64) sim_random(&draw.random) << 16) ^ sim_random(&draw.random);
	config->window = windows[below(lengthof(windows))];
	config->poll_ms = chance(85) ? 3600 * 1000 : 1000;
	config->retry_ms = 1 + below(200);
	config->retry_max_ms = config->retry_ms + below(3000);
	config->merge = chance(60) ? 1 + below(4) : 0;
	config->waiting = chance(60) ? 1 + below(6) : 0;
	config->held = chance(50) ? 1 + below(3) : 0;
	config->standby = chance(10);
	config->slow_declares = chance(25);
	for (int i = 0; i < SIM_ROUTES; i++)
	{
		config->ordered[i] = i == 0 || chance(75) ? 1 + chance(40) : 0;
		config->block[i] = chance(40);
		config->max_attempts[i] = 1 + below(4);
		/* Chains of them have an end. */
		if (i + 1 < SIM_ROUTES && chance(30))
			config->failed_route[i] = 2 + i + below(SIM_ROUTES - 1 - i);
	}
}

/* About time: much of it passes, and routes break and are changed. */
static void
draw_times(SimConfig *config)
{
	config->poll_ms = chance(50) ? 3600 * 1000 : chance(50) ? 1000 : 5000;
	if (chance(50))
		config->retry_ms = 200 + below(800);
	config->retry_max_ms = config->retry_ms + below(10000);
	draw.due = chance(50) ? 6 : 40;
	draw.weight[OP_exchange] = chance(50) ? 6 : 1;
	draw.weight[OP_order] = chance(30) ? 4 : draw.weight[OP_order];
	if (chance(30))
	{
		draw.weight[OP_prepare] = 12;
		draw.weight[OP_commit_prepared] = 12;
	}
	draw.weight[OP_fail] += 6;
	draw.weight[OP_nack] += 4;
	draw.weight[OP_restart] += chance(30) ? 2 : 0;
	draw.declares = chance(50);
}

void
sim_history_draw(SimHistory *history, uint64 seed)
{
	bool		sweeps;

	history->nsteps = 0;
	memset(&draw, 0, sizeof(draw));
	draw.history = history;
	draw.random = seed;
	draw_config(&history->config);
	draw.left = chance(70) ? 50 + below(250) : 50 + below(1500);
	draw.next_label = 1;
	draw.next_gid = 1;
	draw.keys = 1 + below(chance(50) ? 3 : 12);
	draw.routes = chance(50) ? 1 : 1 + below(SIM_ROUTES);
	if (seed % 6 == 1)
	{
		history->config.alike = true;
		draw.routes = Max(draw.routes, 2);
	}
	draw.labels_back = 1 + below(40);
	draw.pass = chance(50) ? 5 : below(90);
	draw.sizes = chance(5);
	draw.due = 6;
	if (chance(12))
	{
		draw.bulk = 20 + below(400);
		draw.left += draw.bulk;
	}
	for (int i = 0; i < (int) lengthof(mixture); i++)
		if (chance(mixture[i].percent))
			draw.weight[mixture[i].op] = Max(1, mixture[i].often * (20 + below(180)) / 100);
	sweeps = chance(4);
	if (sweeps)
	{
		history->config.sweep_ms = 2000;
		history->config.poll_ms = 1000;
		draw.weight[OP_silent] = 10;
	}
	/* More prepared transactions than the inbox holds. */
	if (chance(5))
	{
		draw.weight[OP_relay] /= 4;
		draw.weight[OP_prepare] = 40;
		draw.weight[OP_commit_prepared] = 20;
	}
	if (seed % 4 == 3 && !sweeps)
		draw_times(&history->config);
	if (seed % 5 == 2)
		draw.weight[OP_spoil] = 6;
	if (seed % 9 == 4)
		history->config.confirm_ms = 200 + below(4000);
	if (seed % 7 == 3)
		draw.weight[OP_unorder] = draw.weight[OP_order] = 4;
	for (int op = 0; op < OP_COUNT; op++)
		draw.total += draw.weight[op];
	sim_run(&history->config, next_drawn);
}

/* ---------------------------------------------------------------- shrinking */

/* Does it fail as it did? */
static bool
fails_alike(const SimHistory *history, const char *check)
{
	sim_history_replay(history);
	return sim_verdict.failed && strcmp(sim_verdict.check, check) == 0;
}

static bool
without(SimHistory *history, int from, int n, const char *check)
{
	SimHistory	shorter = *history;

	shorter.steps = malloc(sizeof(SimStep) * (history->nsteps + 1));
	shorter.nsteps = history->nsteps - n;
	shorter.max = history->nsteps + 1;
	memcpy(shorter.steps, history->steps, sizeof(SimStep) * from);
	memcpy(shorter.steps + from, history->steps + from + n,
		   sizeof(SimStep) * (history->nsteps - from - n));
	if (!fails_alike(&shorter, check))
	{
		free(shorter.steps);
		return false;
	}
	free(history->steps);
	history->steps = shorter.steps;
	history->nsteps = shorter.nsteps;
	history->max = shorter.max;
	return true;
}

/* One number smaller, as far as it goes. */
static bool
simplify(SimHistory *history, const char *check)
{
	bool		any = false;

	for (int i = 0; i < history->nsteps; i++)
		for (int j = 0; j < SIM_ARGS; j++)
		{
			int		   *arg = &history->steps[i].arg[j];
			int			was = *arg;
			bool		is_name = history->steps[i].op != OP_relay &&
				history->steps[i].op != OP_time && j < 2;

			if (was == 0 || is_name)
				continue;
			*arg = history->steps[i].op == OP_relay ? was - 1 : 0;
			if (*arg == 0 && history->steps[i].op == OP_relay)
			{
				*arg = was;
				continue;
			}
			if (fails_alike(history, check))
				any = true;
			else
				*arg = was;
		}
	return any;
}

/* Neighbours that only let the relay go on become one. */
static void
join(SimHistory *history, const char *check)
{
	for (int i = 0; i + 1 < history->nsteps;)
	{
		SimStep    *step = &history->steps[i];
		int			more = history->steps[i + 1].arg[0];

		if (step->op != OP_relay || history->steps[i + 1].op != OP_relay)
		{
			i++;
			continue;
		}
		step->arg[0] += more;
		if (!without(history, i + 1, 1, check))
		{
			history->steps[i].arg[0] -= more;
			i++;
		}
	}
}

void
sim_history_shrink(SimHistory *history)
{
	char		check[sizeof(sim_verdict.check)];
	bool		verbose = sim_verbose;
	bool		again = true;

	strlcpy(check, sim_verdict.check, sizeof(check));
	sim_verbose = false;
	for (int rounds = 0; again && rounds < 8; rounds++)
	{
		again = false;
		for (int n = Max(history->nsteps / 2, 1); n >= 1; n /= 2)
			for (int from = history->nsteps - n; from >= 0; from -= n)
				if (from + n <= history->nsteps && without(history, from, n, check))
					again = true;
		join(history, check);
		if (simplify(history, check))
			again = true;
	}
	(void) fails_alike(history, check);
	sim_verbose = verbose;
}
