/*-------------------------------------------------------------------------
 *
 * pg.c
 *		The server's functions that the link and the encoder use, in a program
 *		without a server.
 *
 * Compiled against the server's headers, so that structs and inline functions are
 * the real ones; what is plain C in the server (wchar.c, snprintf.c) comes from
 * its libraries.  Each palloc() is a malloc() of its own, so that the sanitizer
 * sees its bounds and who uses it after it was freed: in a server it is one block
 * for many.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <signal.h>

#include "lib/ilist.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "nodes/memnodes.h"
#include "pgtime.h"
#include "storage/fd.h"
#include "storage/latch.h"
#include "storage/proc.h"
#include "storage/procsignal.h"
#include "tcop/tcopprot.h"
#include "utils/fmgrprotos.h"
#include "utils/memutils.h"
#include "utils/timeout.h"
#include "utils/timestamp.h"

#include "pg.h"
#include "settings.h"
#include "wait_event.h"

void
fuzz_fail(const char *fmt,...)
{
	va_list		args;

	fflush(stdout);
	(void) fprintf(stderr, "fuzz: ");
	va_start(args, fmt);
	(void) vfprintf(stderr, fmt, args);
	va_end(args);
	(void) fprintf(stderr, "\n");
	abort();
}

/* ------------------------------------------------------------------ memory */

typedef struct Context
{
	MemoryContextData header;
	dlist_head	chunks;
} Context;

/* In front of each; 32 bytes, so that what follows is aligned. */
typedef struct Chunk
{
	dlist_node	node;
	Context    *context;
	Size		size;
} Chunk;

MemoryContext TopMemoryContext;
MemoryContext CurrentMemoryContext;
MemoryContext ErrorContext;

unsigned long fuzz_pallocs;
static unsigned long palloc_fails_at;

void
fuzz_palloc_fail(unsigned long nth)
{
	fuzz_pallocs = 0;
	palloc_fails_at = nth;
}

static MemoryContext
make_context(MemoryContext parent, const char *name)
{
	Context    *context = calloc(1, sizeof(Context));

	if (context == NULL)
		abort();
	context->header.type = T_AllocSetContext;
	context->header.name = name;
	context->header.parent = parent;
	dlist_init(&context->chunks);
	if (parent != NULL)
	{
		context->header.nextchild = parent->firstchild;
		if (parent->firstchild != NULL)
			parent->firstchild->prevchild = &context->header;
		parent->firstchild = &context->header;
	}
	return &context->header;
}

void
MemoryContextReset(MemoryContext context)
{
	Context    *cxt = (Context *) context;

	while (context->firstchild != NULL)
		MemoryContextDelete(context->firstchild);
	while (!dlist_is_empty(&cxt->chunks))
		pfree(dlist_head_element(Chunk, node, &cxt->chunks) + 1);
}

void
MemoryContextDelete(MemoryContext context)
{
	MemoryContextReset(context);
	if (context->prevchild != NULL)
		context->prevchild->nextchild = context->nextchild;
	else if (context->parent != NULL)
		context->parent->firstchild = context->nextchild;
	if (context->nextchild != NULL)
		context->nextchild->prevchild = context->prevchild;
	free(context);
}

void
fuzz_memory_reset(void)
{
	if (TopMemoryContext != NULL)
		MemoryContextDelete(TopMemoryContext);
	TopMemoryContext = make_context(NULL, "top");
	ErrorContext = make_context(TopMemoryContext, "error");
	CurrentMemoryContext = TopMemoryContext;
}

MemoryContext
AllocSetContextCreateInternal(MemoryContext parent, const char *name,
							  Size minContextSize, Size initBlockSize,
							  Size maxBlockSize)
{
	return make_context(parent, name);
}

void *
MemoryContextAlloc(MemoryContext context, Size size)
{
	Chunk	   *chunk = NULL;

	/* as the server does with what is larger than 1 GB */
	if (size > MaxAllocSize)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg_internal("invalid memory alloc request size %zu", size)));
	if (++fuzz_pallocs != palloc_fails_at)
		chunk = malloc(sizeof(Chunk) + size);
	if (chunk == NULL)
	{
		ereport(ERROR,
				(errcode(ERRCODE_OUT_OF_MEMORY), errmsg("out of memory")));
		return NULL;
	}
	chunk->context = (Context *) context;
	chunk->size = size;
	dlist_push_head(&chunk->context->chunks, &chunk->node);
	return chunk + 1;
}

/* Here each chunk is the library's as well as ours: nothing is weighed. */
Size
MemoryContextMemAllocated(MemoryContext context, bool recurse)
{
	return 0;
}

/* With MCXT_ALLOC_NO_OOM, the only flag that is used. */
void *
MemoryContextAllocExtended(MemoryContext context, Size size, int flags)
{
	if (fuzz_pallocs + 1 != palloc_fails_at)
		return MemoryContextAlloc(context, size);
	fuzz_pallocs++;
	return NULL;
}

void *
MemoryContextAllocZero(MemoryContext context, Size size)
{
	return memset(MemoryContextAlloc(context, size), 0, size);
}

void *
MemoryContextAllocZeroAligned(MemoryContext context, Size size)
{
	return MemoryContextAllocZero(context, size);
}

void *
palloc(Size size)
{
	return MemoryContextAlloc(CurrentMemoryContext, size);
}

void *
palloc0(Size size)
{
	return MemoryContextAllocZero(CurrentMemoryContext, size);
}

void
pfree(void *pointer)
{
	Chunk	   *chunk = (Chunk *) pointer - 1;

	dlist_delete(&chunk->node);
	free(chunk);
}

void *
repalloc(void *pointer, Size size)
{
	Chunk	   *old = (Chunk *) pointer - 1;
	void	   *result = MemoryContextAlloc(&old->context->header, size);

	memcpy(result, pointer, Min(size, old->size));
	pfree(pointer);
	return result;
}

char *
MemoryContextStrdup(MemoryContext context, const char *string)
{
	Size		size = strlen(string) + 1;

	return memcpy(MemoryContextAlloc(context, size), string, size);
}

char *
pstrdup(const char *in)
{
	return MemoryContextStrdup(CurrentMemoryContext, in);
}

char *
pnstrdup(const char *in, Size len)
{
	char	   *result;

	len = strnlen(in, len);
	result = palloc(len + 1);
	memcpy(result, in, len);
	result[len] = '\0';
	return result;
}

char *
psprintf(const char *fmt,...)
{
	va_list		args;
	char	   *text;
	int			len;

	va_start(args, fmt);
	len = vsnprintf(NULL, 0, fmt, args);
	va_end(args);
	text = palloc(len + 1);
	va_start(args, fmt);
	(void) vsnprintf(text, len + 1, fmt, args);
	va_end(args);
	return text;
}

/* ----------------------------------------------------------------- strings */

void
initStringInfo(StringInfo str)
{
	str->maxlen = 64;
	str->data = palloc(str->maxlen);
	str->data[0] = '\0';
	str->len = 0;
	str->cursor = 0;
}

void
enlargeStringInfo(StringInfo str, int needed)
{
	if ((Size) needed >= MaxAllocSize - (Size) str->len)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED), errmsg("out of memory")));
	if (str->len + needed < str->maxlen)
		return;
	str->maxlen = Max(2 * str->maxlen, str->len + needed + 1);
	str->data = repalloc(str->data, str->maxlen);
}

void
appendBinaryStringInfoNT(StringInfo str,
#if PG_VERSION_NUM >= 160000
						 const void *data,
#else
						 const char *data,
#endif
						 int datalen)
{
	enlargeStringInfo(str, datalen);
	memcpy(str->data + str->len, data, datalen);
	str->len += datalen;
}

void
appendStringInfoString(StringInfo str, const char *s)
{
	appendBinaryStringInfoNT(str, s, strlen(s));
	str->data[str->len] = '\0';
}

void
appendStringInfoChar(StringInfo str, char ch)
{
	appendBinaryStringInfoNT(str, &ch, 1);
	str->data[str->len] = '\0';
}

void
appendStringInfo(StringInfo str, const char *fmt,...)
{
	char		few[256];
	char	   *text = few;
	va_list		args;
	int			len;

	va_start(args, fmt);
	len = vsnprintf(few, sizeof(few), fmt, args);
	va_end(args);
	if (len >= (int) sizeof(few))
	{
		text = palloc(len + 1);
		va_start(args, fmt);
		(void) vsnprintf(text, len + 1, fmt, args);
		va_end(args);
	}
	appendStringInfoString(str, text);
}

/* ------------------------------------------------------------------- errors */

sigjmp_buf *PG_exception_stack;
ErrorContextCallback *error_context_stack;

static ErrorData error;
char		fuzz_error_text[1024];

bool
errstart(int elevel, const char *domain)
{
	error.elevel = elevel;
	error.sqlerrcode = ERRCODE_INTERNAL_ERROR;
	return elevel >= ERROR;
}

pg_attribute_cold bool
errstart_cold(int elevel, const char *domain)
{
	return errstart(elevel, domain);
}

void
errfinish(const char *filename, int lineno, const char *funcname)
{
	if (error.elevel < ERROR)
		return;
	error.message = fuzz_error_text;
	if (error.elevel == ERROR && PG_exception_stack != NULL)
		siglongjmp(*PG_exception_stack, 1);
	fuzz_fail("nobody has caught: %s", fuzz_error_text);
}

void
pg_re_throw(void)
{
	if (PG_exception_stack != NULL)
		siglongjmp(*PG_exception_stack, 1);
	fuzz_fail("nobody has caught: %s", fuzz_error_text);
}

static void
say_error(const char *fmt, va_list args)
{
	(void) vsnprintf(fuzz_error_text, sizeof(fuzz_error_text), fmt, args);
}

int
errmsg(const char *fmt,...)
{
	va_list		args;

	va_start(args, fmt);
	say_error(fmt, args);
	va_end(args);
	return 0;
}

int
errmsg_internal(const char *fmt,...)
{
	va_list		args;

	va_start(args, fmt);
	say_error(fmt, args);
	va_end(args);
	return 0;
}

/* Only that their arguments fit. */
int
errdetail(const char *fmt,...)
{
	char		text[1024];
	va_list		args;

	va_start(args, fmt);
	(void) vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	return 0;
}

int
errhint(const char *fmt,...)
{
	return 0;
}

int
errcode(int sqlerrcode)
{
	error.sqlerrcode = sqlerrcode;
	return 0;
}

int
geterrcode(void)
{
	return error.sqlerrcode;
}

ErrorData *
CopyErrorData(void)
{
	ErrorData  *copy = palloc(sizeof(ErrorData));

	*copy = error;
	copy->message = pstrdup(fuzz_error_text);
	return copy;
}

void
FlushErrorState(void)
{
}

void
ExceptionalCondition(const char *conditionName,
#if PG_VERSION_NUM < 160000
					 const char *errorType,
#endif
					 const char *fileName, int lineNumber)
{
	fuzz_fail("assertion: %s, %s:%d", conditionName, fileName, lineNumber);
}

/* ----------------------------------------------------------------- encoding */

int			fuzz_encoding = PG_UTF8;

int
GetDatabaseEncoding(void)
{
	return fuzz_encoding;
}

char *
pg_server_to_any(const char *s, int len, int encoding)
{
	return unconstify(char *, s);
}

void
check_stack_depth(void)
{
}

/* ------------------------------------------------------------------- numbers */

/* A numeric is its text here, behind the length that every value has. */
static const char *
digits_of(Numeric number)
{
	return VARDATA(number);
}

Datum
numeric_out(PG_FUNCTION_ARGS)
{
	PG_RETURN_CSTRING(pstrdup(digits_of((Numeric) PG_GETARG_POINTER(0))));
}

Datum
numeric_scale(PG_FUNCTION_ARGS)
{
	const char *point = strchr(digits_of((Numeric) PG_GETARG_POINTER(0)), '.');

	PG_RETURN_INT32(point != NULL ? (int32) strlen(point + 1) : 0);
}

char *
numeric_normalize(Numeric num)
{
	char	   *text = pstrdup(digits_of(num));
	size_t		len = strlen(text);

	if (strchr(text, '.') == NULL)
		return text;
	while (text[len - 1] == '0')
		text[--len] = '\0';
	if (text[len - 1] == '.')
		text[--len] = '\0';
	return text;
}

Datum
DirectFunctionCall1Coll(PGFunction func, Oid collation, Datum arg1)
{
	LOCAL_FCINFO(fcinfo, 1);

	InitFunctionCallInfoData(*fcinfo, NULL, 1, collation, NULL, NULL);
	fcinfo->args[0].value = arg1;
	fcinfo->args[0].isnull = false;
	return func(fcinfo);
}

/* --------------------------------------------------------------------- time */

TimestampTz
GetCurrentTimestamp(void)
{
	return 0;
}

pg_time_t
timestamptz_to_time_t(TimestampTz t)
{
	return (pg_time_t) (t / USECS_PER_SEC +
						((POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * SECS_PER_DAY));
}

/* Its year may have more digits than four; that is all that matters here. */
int
timestamp2tm(Timestamp dt, int *tzp, struct pg_tm *tm, fsec_t *fsec,
			 const char **tzn, pg_tz *attimezone)
{
	if (dt < MIN_TIMESTAMP || dt >= END_TIMESTAMP)
		return -1;
	memset(tm, 0, sizeof(*tm));
	tm->tm_year = 2000 + (int) (dt / USECS_PER_DAY / 366);
	tm->tm_mon = 1;
	tm->tm_mday = 1;
	*fsec = (fsec_t) (Abs(dt) % USECS_PER_SEC);
	return 0;
}

/* ---------------------------------------------------------- process, signals */

volatile sig_atomic_t InterruptPending;
volatile sig_atomic_t QueryCancelPending;
volatile sig_atomic_t ProcDiePending;
volatile sig_atomic_t ProcSignalBarrierPending;
volatile uint32 InterruptHoldoffCount;
volatile uint32 CritSectionCount;
int			MyProcPid;
PGPROC	   *MyProc;
struct Latch *MyLatch;

int			fuzz_external_fds;

bool
AcquireExternalFD(void)
{
	fuzz_external_fds++;
	return true;
}

void
ReleaseExternalFD(void)
{
	fuzz_check(fuzz_external_fds > 0, "a descriptor is given back twice");
	fuzz_external_fds--;
}

void
SetLatch(Latch *latch)
{
}

void
die(SIGNAL_ARGS)
{
	abort();
}

static pqsigfunc handler;		/* there is one */

static void
on_signal(int signo)
{
#if PG_VERSION_NUM >= 190000
	handler(signo, &(const pg_signal_info) {0, 0});
#else
	handler(signo);
#endif
}

#if PG_VERSION_NUM >= 180000
void
#else
pqsigfunc
#endif
pqsignal(int signo, pqsigfunc func)
{
	struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};

	handler = func;
	(void) sigaction(signo, &action, NULL);
#if PG_VERSION_NUM < 180000
	return NULL;
#endif
}

TimeoutId
RegisterTimeout(TimeoutId id, timeout_handler_proc handler)
{
	return id;
}

void
enable_timeout_every(TimeoutId id, TimestampTz fin_time, int delay_ms)
{
}

void
disable_timeout(TimeoutId id, bool keep_indicator)
{
}

/* ---------------------------------------------------------------------- ours */

bool		outbox_trace_spans = true;
bool		outbox_allow_plaintext = false;
bool		outbox_tls_verify = false;
int			outbox_auth_mechanism = 0;
int			outbox_max_message_size = 1024 * 1024;
char	   *outbox_passfile = "";
char	   *outbox_tls_ca_file = "";
char	   *outbox_tls_cert_file = "";
char	   *outbox_tls_key_file = "";
char	   *outbox_tls_key_passfile = "";

void
outbox_wait_start(OutboxWait wait)
{
}

void
outbox_wait_end(void)
{
}
