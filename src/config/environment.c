/*-------------------------------------------------------------------------
 *
 * environment.c
 *		Is this the server that the messages belong to, or a copy of it?
 *
 * A base backup, a snapshot and a recovery to a point in time have the system
 * identifier of their original, as a standby has that takes over from it.  Two
 * things tell them apart: a name that the configuration gives to the server,
 * where that is not copied with the data, and what the server itself writes down
 * of a recovery that ended at a target.  identity.c compares them with what is
 * recorded; see doc/copies.md for what neither tells.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "access/xlog_internal.h"
#include "common/string.h"
#include "compat.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "settings.h"
#include "storage/fd.h"
#include "utils/guc_tables.h"
#include "utils/memutils.h"

const char *
outbox_environment_default(void)
{
	const char *name = getenv("OUTBOX_ENVIRONMENT");

	return name != NULL && pg_is_ascii(name) ? name : "";
}

/* Without symbolic links, where it can be followed. */
static char *
resolve(const char *path)
{
	char		resolved[PATH_MAX];
	char	   *result = pstrdup(realpath(path, resolved) != NULL ? resolved : path);

	canonicalize_path(result);
	return result;
}

const struct config_generic *
outbox_setting_find(const char *name)
{
	int			n;
	struct config_generic **settings = compat_settings(&n);

	for (int i = 0; i < n; i++)
		if (strcmp(settings[i]->name, name) == 0)
			return settings[i];
	elog(ERROR, "there is no setting \"%s\"", name);
}

/*
 * By the setting's record: pg_settings shows the file only to roles that may see it,
 * which the owner of the extension need not be.
 */
static bool
is_outside(const struct config_generic *setting)
{
	switch (setting->source)
	{
		case PGC_S_DEFAULT:		/* outbox_environment_default() */
		case PGC_S_ARGV:
			return true;
		case PGC_S_FILE:
			return setting->sourcefile != NULL &&
				!path_is_prefix_of_path(resolve(DataDir), resolve(setting->sourcefile));
		default:
			return false;
	}
}

const char *
outbox_environment_unusable(void)
{
	/*
	 * Its record stays in its place; to find it, newer servers list and sort
	 * all.
	 */
	static const struct config_generic *setting = NULL;

	if (outbox_environment[0] == '\0')
		return NULL;
	if (setting == NULL)
		setting = outbox_setting_find("outbox.environment");
	if (is_outside(setting))
		return NULL;
	return "\"outbox.environment\" is not set outside of the data directory, so that each copy of it has the same";
}

/*
 * As xlogrecovery.c writes it.  A promotion, and the end of the archive, say "no
 * recovery target specified".
 */
static bool
is_target(const char *reason)
{
	static const char *const targets[] = {
		"before ", "after ", "at restore point ", "reached consistency"
	};

	for (int i = 0; i < (int) lengthof(targets); i++)
		if (strncmp(reason, targets[i], strlen(targets[i])) == 0)
			return true;
	return false;
}

/*
 * A server has one timeline from the end of recovery on, so that its history is
 * read once.
 */
TimeLineID
outbox_environment_restored(char **how)
{
	static bool known = false;
	static TimeLineID restored = 0;
	static char *reason = NULL;
	TimeLineID	current;
	char		path[MAXPGPATH];
	FILE	   *file;
	StringInfoData line;

	*how = reason;
	if (known)
		return restored;
	known = true;
	current = GetWALInsertionTimeLine();
	if (current == 1)
		return 0;
	TLHistoryFilePath(path, current);
	file = AllocateFile(path, "r");
	if (file == NULL)
	{
		ereport(LOG,
				(errcode_for_file_access(),
				 errmsg("could not open file \"%s\": %m", path),
				 errdetail("So outbox cannot tell whether this server was restored to a point in time.")));
		return 0;
	}
	initStringInfo(&line);
	/* A line for each timeline that was left: number, where, why. */
	while (pg_get_line_buf(file, &line))
	{
		TimeLineID	left;
		uint32		hi;
		uint32		lo;
		int			at = 0;

		if (sscanf(line.data, "%u %X/%X %n", &left, &hi, &lo, &at) < 3 ||
			at == 0 || !is_target(line.data + at) || left < restored)
			continue;
		(void) pg_strip_crlf(line.data);
		if (reason != NULL)
			pfree(reason);
		reason = MemoryContextStrdup(TopMemoryContext, line.data + at);
		restored = left;
	}
	FreeFile(file);
	pfree(line.data);
	*how = reason;
	return restored;
}
