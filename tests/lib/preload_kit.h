/* SPDX-License-Identifier: MIT */
#ifndef SENNIT_TESTS_PRELOAD_KIT_H
#define SENNIT_TESTS_PRELOAD_KIT_H

#include "lib/test.h"

#include <infiniband/verbs.h>

/* A soft device by its number, as programs find it. */
static inline struct ibv_context *open_soft(unsigned which)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = NULL;
	char name[16];

	assert_non_null(list);
	snprintf(name, sizeof(name), "soft%u", which);
	for (int i = 0; list[i]; i++)
		if (!strcmp(ibv_get_device_name(list[i]), name))
			context = ibv_open_device(list[i]);
	ibv_free_device_list(list);
	assert_non_null(context);
	return context;
}

#endif
