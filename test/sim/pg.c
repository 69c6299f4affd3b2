/*-------------------------------------------------------------------------
 *
 * pg.c
 *		The server's functions that the relay uses, for one process without a
 *		server: memory that is counted, hash tables, lists, errors, locks that
 *		are never contended.
 *
 * Compiled against the server's headers, so that the structs and the inline
 * functions are the real ones.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/transam.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "common/pg_prng.h"
#include "fmgr.h"
#include "lib/ilist.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "nodes/memnodes.h"
#include "nodes/pg_list.h"
#include "sim.h"
#include "storage/lwlock.h"
#include "storage/pmsignal.h"
#include "storage/s_lock.h"
#include "utils/elog.h"
#include "utils/fmgrprotos.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"

#undef snprintf
#undef vsnprintf
#undef fprintf
#undef qsort

#include <strings.h>

/* ------------------------------------------------------------------ memory */

typedef struct Chunk
{
	dlist_node	node;
	MemoryContext cxt;
	Size		size;
	Size		counts;			/* bytes that it stands for, of a message */
	Size		unused;			/* what follows is aligned to 16 */
} Chunk;

typedef struct Context
{
	MemoryContextData header;
	dlist_head	chunks;
} Context;

MemoryContext TopMemoryContext;
MemoryContext TopTransactionContext;	/* for sessions; the simulator has none that would use it */
MemoryContext CurrentMemoryContext;
MemoryContext ErrorContext;

Size		sim_memory_used;
Size		sim_memory_peak;
Size		sim_message_bytes;

static MemoryContext
make_context(MemoryContext parent, const char *name)
{
	Context    *cxt = calloc(1, sizeof(Context));

	cxt->header.type = T_AllocSetContext;
	cxt->header.name = name;
	cxt->header.parent = parent;
	dlist_init(&cxt->chunks);
	if (parent != NULL)
	{
		cxt->header.nextchild = parent->firstchild;
		if (parent->firstchild != NULL)
			parent->firstchild->prevchild = &cxt->header;
		parent->firstchild = &cxt->header;
	}
	return &cxt->header;
}

static void
free_chunk(Chunk *chunk)
{
	dlist_delete(&chunk->node);
	sim_memory_used -= chunk->size;
	sim_message_bytes -= chunk->counts;
	memset(chunk + 1, 0x7F, Min(chunk->size, 256));
	free(chunk);
}

void
MemoryContextReset(MemoryContext context)
{
	Context    *cxt = (Context *) context;

	while (context->firstchild != NULL)
		MemoryContextDelete(context->firstchild);
	while (!dlist_is_empty(&cxt->chunks))
		free_chunk(dlist_head_element(Chunk, node, &cxt->chunks));
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
	Chunk	   *chunk = malloc(sizeof(Chunk) + size);

	chunk->cxt = context;
	chunk->size = size;
	chunk->counts = 0;
	dlist_push_head(&((Context *) context)->chunks, &chunk->node);
	sim_memory_used += size;
	sim_memory_peak = Max(sim_memory_peak, sim_memory_used);
	return chunk + 1;
}

/* A message of the fake store stands for so many bytes. */
void *
sim_message_alloc(MemoryContext cxt, Size size, Size counts)
{
	void	   *message = MemoryContextAlloc(cxt, size);

	((Chunk *) message - 1)->counts = counts;
	sim_message_bytes += counts;
	return message;
}

void *
MemoryContextAllocZero(MemoryContext context, Size size)
{
	return memset(MemoryContextAlloc(context, size), 0, size);
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
	free_chunk((Chunk *) pointer - 1);
}

void *
repalloc(void *pointer, Size size)
{
	Chunk	   *old = (Chunk *) pointer - 1;
	void	   *result = MemoryContextAlloc(old->cxt, size);

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
	char		text[2048];
	va_list		args;

	va_start(args, fmt);
	(void) vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	return pstrdup(text);
}

int
pg_snprintf(char *str, size_t count, const char *fmt,...)
{
	va_list		args;
	int			n;

	va_start(args, fmt);
	n = vsnprintf(str, count, fmt, args);
	va_end(args);
	return n;
}

/* A process begins with nothing. */
void
sim_memory_init(void)
{
	sim_memory_forget();
	TopMemoryContext = make_context(NULL, "top");
	ErrorContext = make_context(TopMemoryContext, "error");
	CurrentMemoryContext = TopMemoryContext;
	sim_memory_used = sim_memory_peak = sim_message_bytes = 0;
}

void
sim_memory_forget(void)
{
	if (TopMemoryContext != NULL)
		MemoryContextDelete(TopMemoryContext);
	TopMemoryContext = NULL;
}

/* -------------------------------------------------------------- hash tables */

typedef struct Entry
{
	struct Entry *next;
	uint32		hash;
	/* the caller's follows, aligned */
} Entry;

#define ENTRY_DATA(entry) ((void *) ((entry) + 1))

struct HTAB
{
	MemoryContext cxt;
	HashValueFunc hash;
	HashCompareFunc match;
	Size		keysize;
	Size		entrysize;
	long		count;
	uint32		nbuckets;
	Entry	  **buckets;
};

static uint32
hash_bytes_of(const void *key, Size size)
{
	const unsigned char *p = key;
	uint32		hash = 2166136261u;

	for (Size i = 0; i < size; i++)
		hash = (hash ^ p[i]) * 16777619u;
	return hash ^ hash >> 15;
}

HTAB *
hash_create(const char *tabname, __typeof__(hash_get_num_entries((HTAB *) NULL)) nelem,
			const HASHCTL *info, int flags)
{
	MemoryContext cxt = (flags & HASH_CONTEXT) ? info->hcxt : TopMemoryContext;
	HTAB	   *table = MemoryContextAllocZero(cxt, sizeof(HTAB));

	table->cxt = cxt;
	table->hash = (flags & HASH_FUNCTION) ? info->hash : hash_bytes_of;
	table->match = (flags & HASH_COMPARE) ? info->match : memcmp;
	table->keysize = info->keysize;
	table->entrysize = info->entrysize;
	table->nbuckets = 64;
	table->buckets = MemoryContextAllocZero(cxt, sizeof(Entry *) * table->nbuckets);
	return table;
}

static void
grow(HTAB *table)
{
	uint32		n = table->nbuckets * 4;
	Entry	  **buckets = MemoryContextAllocZero(table->cxt, sizeof(Entry *) * n);

	for (uint32 i = 0; i < table->nbuckets; i++)
		while (table->buckets[i] != NULL)
		{
			Entry	   *entry = table->buckets[i];

			table->buckets[i] = entry->next;
			entry->next = buckets[entry->hash % n];
			buckets[entry->hash % n] = entry;
		}
	pfree(table->buckets);
	table->buckets = buckets;
	table->nbuckets = n;
}

void *
hash_search(HTAB *table, const void *key, HASHACTION action, bool *found)
{
	uint32		hash = table->hash(key, table->keysize);
	Entry	  **at = &table->buckets[hash % table->nbuckets];
	Entry	   *entry;

	while (*at != NULL && ((*at)->hash != hash ||
						   table->match(ENTRY_DATA(*at), key, table->keysize) != 0))
		at = &(*at)->next;
	entry = *at;
	if (found != NULL)
		*found = entry != NULL;
	if (action == HASH_REMOVE && entry != NULL)
	{
		void	   *data = ENTRY_DATA(entry);

		*at = entry->next;
		table->count--;
		/* As with dynahash, the caller may look at it once more: at the address. */
		pfree(entry);
		return data;
	}
	if (entry != NULL || action == HASH_FIND || action == HASH_REMOVE)
		return entry == NULL ? NULL : ENTRY_DATA(entry);
	if (table->count >= 2 * (long) table->nbuckets)
		grow(table);
	entry = MemoryContextAllocZero(table->cxt, sizeof(Entry) + table->entrysize);
	entry->hash = hash;
	memcpy(ENTRY_DATA(entry), key, table->keysize);
	at = &table->buckets[hash % table->nbuckets];
	entry->next = *at;
	*at = entry;
	table->count++;
	return ENTRY_DATA(entry);
}

__typeof__(hash_get_num_entries((HTAB *) NULL))
hash_get_num_entries(HTAB *table)
{
	return table->count;
}

/* The caller may remove the entry that it got last; here it may add, too. */
void
hash_seq_init(HASH_SEQ_STATUS *status, HTAB *table)
{
	status->hashp = table;
	status->curBucket = 0;
	status->curEntry = (HASHELEMENT *) table->buckets[0];
}

void *
hash_seq_search(HASH_SEQ_STATUS *status)
{
	Entry	   *entry = (Entry *) status->curEntry;

	while (entry == NULL)
	{
		if (++status->curBucket >= status->hashp->nbuckets)
			return NULL;
		entry = status->hashp->buckets[status->curBucket];
	}
	status->curEntry = (HASHELEMENT *) entry->next;
	return ENTRY_DATA(entry);
}

void
hash_seq_term(HASH_SEQ_STATUS *status)
{
}

/* -------------------------------------------------------------------- lists */

List *
lappend(List *list, void *datum)
{
	if (list == NIL)
	{
		list = palloc(sizeof(List));
		list->type = T_List;
		list->length = 0;
		list->max_length = 8;
		list->elements = palloc(sizeof(ListCell) * list->max_length);
	}
	else if (list->length >= list->max_length)
	{
		list->max_length *= 2;
		list->elements = repalloc(list->elements, sizeof(ListCell) * list->max_length);
	}
	list->elements[list->length++].ptr_value = datum;
	return list;
}

void
list_free(List *list)
{
	if (list == NIL)
		return;
	pfree(list->elements);
	pfree(list);
}

void
pg_qsort(void *base, size_t nel, size_t elsize, int (*cmp) (const void *, const void *))
{
	qsort(base, nel, elsize, cmp);
}

/* ------------------------------------------------------------------- errors */

sigjmp_buf *PG_exception_stack;
ErrorContextCallback *error_context_stack;
sigjmp_buf *sim_process_end;

static ErrorData error;
static char error_text[1024];

bool
errstart(int elevel, const char *domain)
{
	error.elevel = elevel;
	error.sqlerrcode = elevel >= ERROR ? ERRCODE_INTERNAL_ERROR : 0;
	if (elevel == LOG && sim_verbose)
		return true;
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
	sim_trace("    %s: %s", error.elevel >= ERROR ? "ERROR" : "LOG", error_text);
	if (error.elevel < ERROR)
		return;
	sim_late_error();
	error.message = error_text;
	if (error.elevel == ERROR && PG_exception_stack != NULL)
		siglongjmp(*PG_exception_stack, 1);
	/* It ends the process. */
	sim_end_process();
}

void
pg_re_throw(void)
{
	if (PG_exception_stack != NULL)
		siglongjmp(*PG_exception_stack, 1);
	sim_end_process();
}

static void
say_error(const char *fmt, va_list args)
{
	(void) vsnprintf(error_text, sizeof(error_text), fmt, args);
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

int
errdetail(const char *fmt,...)
{
	return 0;
}

int
errdetail_log(const char *fmt,...)
{
	return 0;
}

int
errdetail_internal(const char *fmt,...)
{
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

int
errhidecontext(bool hide_ctx)
{
	return 0;
}

ErrorData *
CopyErrorData(void)
{
	ErrorData  *copy = palloc(sizeof(ErrorData));

	*copy = error;
	copy->message = pstrdup(error_text);
	return copy;
}

char *
unpack_sql_state(int sql_state)
{
	static char text[6];

	for (int i = 0; i < 5; i++)
		text[i] = PGUNSIXBIT(sql_state >> (6 * i));
	return text;
}

void
FreeErrorData(ErrorData *edata)
{
	pfree(edata->message);
	pfree(edata);
}

void
EmitErrorReport(void)
{
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
	sim_broken("assertion", "%s, %s:%d", conditionName, fileName, lineNumber);
}

/* ------------------------------------------------------------------ numbers */

static uint64 jitter;
pg_prng_state pg_global_prng_state;

void
sim_jitter_seed(uint64 seed)
{
	jitter = seed;
}

uint32
sim_random(uint64 *state)
{
	uint64		z = (*state += UINT64CONST(0x9E3779B97F4A7C15));

	z = (z ^ (z >> 30)) * UINT64CONST(0xBF58476D1CE4E5B9);
	z = (z ^ (z >> 27)) * UINT64CONST(0x94D049BB133111EB);
	return (uint32) (z >> 32);
}

uint32
pg_prng_uint32(pg_prng_state *state)
{
	return sim_random(&jitter);
}

/* The seed of a hash that only compares: the same each time is as good. */
bool
pg_strong_random(void *buf, size_t len)
{
	memset(buf, 0, len);
	return true;
}

uint64
hash_bytes_extended(const unsigned char *k, int keylen, uint64 seed)
{
	return seed * UINT64CONST(0x9E3779B97F4A7C15) + hash_bytes_of(k, keylen);
}

Datum
DirectFunctionCall2Coll(PGFunction func, Oid collation, Datum arg1, Datum arg2)
{
	LOCAL_FCINFO(fcinfo, 2);

	InitFunctionCallInfoData(*fcinfo, NULL, 2, collation, NULL, NULL);
	fcinfo->args[0].value = arg1;
	fcinfo->args[0].isnull = false;
	fcinfo->args[1].value = arg2;
	fcinfo->args[1].isnull = false;
	return func(fcinfo);
}

Datum
DirectFunctionCall1Coll(PGFunction func, Oid collation, Datum arg1)
{
	return DirectFunctionCall2Coll(func, collation, arg1, 0);
}

Datum
uuid_hash_extended(PG_FUNCTION_ARGS)
{
	uint64		hash = hash_bytes_of(PG_GETARG_POINTER(0), UUID_LEN);

	return UInt64GetDatum(hash * UINT64CONST(0x9E3779B97F4A7C15));
}

#if PG_VERSION_NUM < 190000		/* inline since */
bool
TransactionIdPrecedes(TransactionId id1, TransactionId id2)
{
	return id1 < id2;
}

bool
TransactionIdPrecedesOrEquals(TransactionId id1, TransactionId id2)
{
	return id1 <= id2;
}
#endif

/* --------------------------------------------------- locks, latches, process */

volatile sig_atomic_t InterruptPending;
volatile uint32 InterruptHoldoffCount;
volatile uint32 CritSectionCount;
volatile sig_atomic_t postmaster_possibly_dead;
int			MyProcPid = 1;
Oid			MyDatabaseId = SIM_DATABASE;
int			MaxBackends = SIM_BACKENDS + 1;
LWLockPadded *MainLWLockArray;
/* Of inline functions that nothing here calls. */
TransactionId CheckXidAlive;
bool		bsysscan;

bool
PostmasterIsAliveInternal(void)
{
	return true;
}

void
ProcessInterrupts(void)
{
}

int
s_lock(volatile slock_t *lock, const char *file, int line, const char *func)
{
	sim_broken("assertion", "a spinlock is taken twice, %s:%d", file, line);
}

bool
LWLockAcquire(LWLock *lock, LWLockMode mode)
{
	return true;
}

void
LWLockRelease(LWLock *lock)
{
}

int
GetDatabaseEncoding(void)
{
	return PG_UTF8;
}

int
pg_encoding_verifymbchar(int encoding, const char *mbstr, int len)
{
	return 1;
}

int
pg_strncasecmp(const char *s1, const char *s2, size_t n)
{
	return strncasecmp(s1, s2, n);
}

Size
mul_size(Size s1, Size s2)
{
	return s1 * s2;
}

#if !HAVE_DECL_STRLCPY
size_t
strlcpy(char *dst, const char *src, size_t size)
{
	size_t		len = strlen(src);

	if (size > 0)
	{
		size_t		n = Min(len, size - 1);

		memcpy(dst, src, n);
		dst[n] = '\0';
	}
	return len;
}
#endif
