/* SPDX-License-Identifier: MIT */
#include "lib/sim/host.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/sim/random.h"
#include "util/err.h"

int snt__sim_host_create(struct snt__sim *sim, struct snt__sim_host **host_out)
{
	struct snt__sim_host *host = calloc(1, sizeof(*host));

	if (!host)
		return snt__fail(ENOMEM, "no memory for a host");
	host->sim = sim;
	host->random = snt__sim_new_stream(sim);
	host->number = sim->host_count++;
	host->next = sim->hosts;
	sim->hosts = host;
	*host_out = host;
	return 0;
}

static uint64_t clock_ns(void *arg)
{
	return snt__sim_now(arg);
}

static int host_fill_random(void *arg, void *buffer, size_t length)
{
	struct snt__sim_host *host = arg;
	unsigned char *to = buffer;

	for (size_t i = 0; i < length; i++)
		to[i] = snt__sim_random(&host->random) >> 56;
	return 0;
}

void snt__sim_host_ctx_opts(struct snt__sim_host *host, struct snt_ctx_opts *opts)
{
	opts->adopted = host->adopted;
	opts->adopted_count = host->device_count;
	opts->clock = clock_ns;
	opts->clock_arg = host->sim;
	opts->random = host_fill_random;
	opts->random_arg = host;
}

void snt__sim_host_kill(struct snt__sim_host *host)
{
	host->dead = true;
}
