/*
 * commands.h: commands on stdin, for the programs that a test tells line by line
 * what to do (OutboxTest::LineTool).
 *
 * stdin does not block.  Its end is the end of the test, and of the program.
 */
#ifndef OUTBOX_COMMANDS_H
#define OUTBOX_COMMANDS_H

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Calls run() with each line that is complete, without its end. */
static void
read_commands(void (*run) (char *line))
{
	static char buffer[4096];
	static size_t used;
	ssize_t		n = read(STDIN_FILENO, buffer + used, sizeof(buffer) - 1 - used);
	char	   *end;

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0)
		exit(0);
	used += n;
	buffer[used] = '\0';
	while ((end = strchr(buffer, '\n')) != NULL)
	{
		*end = '\0';
		run(buffer);
		used -= end + 1 - buffer;
		memmove(buffer, end + 1, used + 1);
	}
}

#endif							/* OUTBOX_COMMANDS_H */
