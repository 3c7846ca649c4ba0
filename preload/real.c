/* SPDX-License-Identifier: MIT */
/* The real libraries. They are loaded when the first of their functions is called: most
 * processes that inherit LD_PRELOAD do not use RDMA. */
#include "real.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>

#include "lookup.h"
#include "preload.h"

static struct snt__real real;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* The library stays loaded, so that its functions stay valid. */
static void *load_library(const char *name)
{
	return dlopen(name, RTLD_NOW | RTLD_LOCAL);
}

/* ISO C has no conversion from a symbol's address to a function pointer. */
static void find_function(void *library, const char *name, void *function_out)
{
	void *symbol = library ? snt__preload_real_symbol(library, name) : NULL;

	memcpy(function_out, &symbol, sizeof(symbol));
}

static void find_all(void)
{
	void *verbs = load_library("libibverbs.so.1");
	void *cm = load_library("librdmacm.so.1");

#define X(name) find_function(verbs, #name, &real.name);
	SNT__REAL_VERBS(X)
#undef X
#define X(name) find_function(cm, #name, &real.name);
	SNT__REAL_CM(X)
#undef X
}

const struct snt__real *snt__real(void)
{
	pthread_once(&once, find_all);
	return &real;
}

static bool name_begins(const char *text, const char *word)
{
	return strncmp(text, word, strlen(word)) == 0;
}

static bool is_ours(const void *caller)
{
	const char *name;
	Dl_info info;

	if (!dladdr(caller, &info) || !info.dli_fname)
		return false;
	name = strrchr(info.dli_fname, '/');
	name = name ? name + 1 : info.dli_fname;
	return name_begins(name, "librdmacm.so") || name_begins(name, "libsennit.so");
}

/*
 * The answer for each caller is cached: dladdr() takes a lock, which would stay locked
 * for ever in a child if another thread held it when the process forked.
 */
#define CALLERS 256

bool snt__preload_bypassed(const void *caller)
{
	static uint64_t known[CALLERS]; /* the caller, and a bit: the answer */
	uint64_t address = (uintptr_t)caller;
	uint64_t *slot = &known[(address ^ address >> 8) % CALLERS];
	uint64_t answer = __atomic_load_n(slot, __ATOMIC_RELAXED);

	if (answer >> 1 != address) {
		answer = address << 1 | is_ours(caller);
		__atomic_store_n(slot, answer, __ATOMIC_RELAXED);
	}
	return answer & 1;
}
