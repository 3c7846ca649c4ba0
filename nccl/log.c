/* SPDX-License-Identifier: MIT */
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>

#include "plugin.h"

#define PREFIX "NET/sennit : "

/* Every init() passes one; it is the same function of NCCL each time. */
static _Atomic(nccl_log_fn) nccl_log;

void plugin_set_log(nccl_log_fn log)
{
	atomic_store(&nccl_log, log);
}

static void log_list(enum nccl_log_level level, const char *format, va_list list)
{
	const nccl_log_fn log = atomic_load(&nccl_log);
	char text[1024];

	if (!log)
		return;
	vsnprintf(text, sizeof(text), format, list);
	log(level, NCCL_SUBSYSTEM_INIT | NCCL_SUBSYSTEM_NET, __FILE__, __LINE__,
	    PREFIX "%s", text);
}

void plugin_log(enum nccl_log_level level, const char *format, ...)
{
	va_list list;

	va_start(list, format);
	log_list(level, format, list);
	va_end(list);
}

int plugin_fail(enum nccl_result result, const char *format, ...)
{
	va_list list;

	va_start(list, format);
	log_list(NCCL_WARN, format, list);
	va_end(list);
	return result;
}
