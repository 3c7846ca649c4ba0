/* SPDX-License-Identifier: MIT */
/*
 * How an RDMA device behaves, as a program sees it through verbs.
 *
 *	conformance [--scripted | --sim | --udp ADDRESS|auto] [--list] [--case NAME]
 *
 * Prints for each case its name, a tab and what was observed. Nothing is judged
 * here: compare.py compares it with the table in docs/internals/conformance.md.
 */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "lib/sim/device.h"
#include "lib/devices/scripted.h"
#include "kit.h"

#define ADDRESS_WAIT_MS 60000
/* How it ends where there is no IPv6, say: nothing can be observed. */
#define NO_SUCH_ADDRESS 77

static const struct conformance_case *const themes[] = {
	cases_device,  cases_memory, cases_data,   cases_order, cases_error,
	cases_peer,    cases_flush,  cases_post,   cases_queue, cases_state,
	cases_channel, cases_srq,    cases_window,
};

struct wish {
	bool scripted;
	bool sim;
	const char *udp;
	bool list;
	const char *name;
};

/* What a made-up device lives in. */
struct place {
	struct scripted_fabric *scripted;
	struct snt__sim *sim;
};

static uint64_t sim_now(void *sim)
{
	return snt__sim_now(sim);
}

static void sim_pass(void *sim, unsigned ms)
{
	snt__sim_run(sim, snt__sim_now(sim) + ms * UINT64_C(1000000));
}

/* A soft device, a microsecond away from itself. */
static bool open_sim(struct kit *kit, struct place *place, struct snt_ctx_opts *opts)
{
	static const struct snt__sim_link_opts link = { .delay_ns = 500 };
	struct snt__sim_device_opts device_opts = { .out = &link, .in = &link };
	struct snt__sim_opts sim_opts = { .seed = 1 };
	struct snt__sim_device *device;
	struct snt__sim_host *host;

	if (snt__sim_create(&sim_opts, &place->sim) ||
	    snt__sim_host_create(place->sim, &host) ||
	    snt__sim_device_create(host, &device_opts, &device))
		return false;
	snt__sim_host_ctx_opts(host, opts);
	kit->now_ns = sim_now;
	kit->pass = sim_pass;
	kit->time_arg = place->sim;
	return true;
}

/* "auto" is what a context takes by itself. */
static const char *soft_addresses(const struct wish *wish)
{
	return wish->udp && strcmp(wish->udp, "auto") ? wish->udp : NULL;
}

/* IPv6 has one loopback address, of which another test may be the owner for a while. */
static int open_ctx(const struct snt_ctx_opts *opts, struct snt_ctx **ctx_out)
{
	const struct timespec while_ms = { .tv_nsec = 50000000 };
	int ret = snt_ctx_create(opts, ctx_out);

	for (unsigned i = 0; ret == -EADDRINUSE && i < ADDRESS_WAIT_MS / 50; i++) {
		nanosleep(&while_ms, NULL);
		ret = snt_ctx_create(opts, ctx_out);
	}
	return ret;
}

/* Does the host not have the address that was wished for, or another program all the time? */
static bool is_lacking(int ret, const struct wish *wish)
{
	return ret == -EADDRNOTAVAIL || (ret == -EADDRINUSE && soft_addresses(wish));
}

/* Returns 0 or a negative errno, and has said why. */
static int open_kit(struct kit *kit, const struct wish *wish, struct place *place,
		    struct snt_ctx **ctx_out)
{
	struct snt_ctx_opts opts = { .size = sizeof(opts),
				     .soft = wish->udp ? SNT_SOFT_ONLY : 0,
				     .soft_addresses = soft_addresses(wish) };
	struct snt_adopted adopted;
	int ret;

	if (wish->scripted) {
		place->scripted = scripted_fabric_create(1);
		scripted_eager(place->scripted, true);
		adopted =
			scripted_adopted(scripted_device_create(place->scripted, NULL));
		opts.adopted = &adopted;
		opts.adopted_count = 1;
	}
	if (wish->sim && !open_sim(kit, place, &opts)) {
		fprintf(stderr, "conformance: %s\n", snt_err_text());
		return -ENOMEM;
	}
	ret = open_ctx(&opts, ctx_out);
	if (ret) {
		fprintf(stderr, "conformance: %s\n", snt_err_text());
		return ret;
	}
	kit->device = snt_ctx_device(*ctx_out, 0);
	kit->control = snt_device_control(kit->device);
	kit->context = snt_device_context(kit->device);
	kit->at_once = wish->scripted;
	kit->info.size = sizeof(kit->info);
	kit->gid.size = sizeof(kit->gid);
	snt_device_query(kit->device, &kit->info);
	for (unsigned i = 0; !snt_device_query_gid(kit->device, i, &kit->gid); i++)
		if ((int32_t)kit->gid.index == kit->info.gid_index)
			break;
	return 0;
}

/* Returns how many there were. */
static unsigned run(const struct kit *kit, const struct wish *wish)
{
	unsigned count = 0;

	for (unsigned i = 0; i < ARRAY_SIZE(themes); i++)
		for (const struct conformance_case *test = themes[i]; test->name;
		     test++) {
			if (wish->name && strcmp(wish->name, test->name) != 0)
				continue;
			printf("%s\t%s\n", test->name,
			       wish->list ? test->what : scene_run(kit, test));
			fflush(stdout);
			count++;
		}
	return count;
}

static int perform(const struct wish *wish)
{
	struct place place = { 0 };
	struct snt_ctx *ctx = NULL;
	struct kit kit = { 0 };
	int failed = 0, ret = 0;

	if (!wish->list)
		ret = open_kit(&kit, wish, &place, &ctx);
	if (ret)
		return is_lacking(ret, wish) ? NO_SUCH_ADDRESS : 1;
	if (!run(&kit, wish)) {
		fprintf(stderr, "conformance: no such case\n");
		failed = 1;
	}
	if (snt_ctx_destroy(ctx)) {
		fprintf(stderr, "conformance: %s\n", snt_err_text());
		failed = 1;
	}
	if ((place.scripted && scripted_fabric_destroy(place.scripted)) ||
	    snt__sim_destroy(place.sim)) {
		fprintf(stderr, "conformance: objects are left\n");
		failed = 1;
	}
	return failed;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "scripted", no_argument, NULL, 's' },
		{ "sim", no_argument, NULL, 'v' },
		{ "udp", required_argument, NULL, 'u' },
		{ "list", no_argument, NULL, 'l' },
		{ "case", required_argument, NULL, 'c' },
		{ 0 },
	};
	struct wish wish = { 0 };
	int option;

	while ((option = getopt_long(argc, argv, "", options, NULL)) >= 0) {
		switch (option) {
		case 's':
			wish.scripted = true;
			break;
		case 'v':
			wish.sim = true;
			break;
		case 'u':
			wish.udp = optarg;
			break;
		case 'l':
			wish.list = true;
			break;
		case 'c':
			wish.name = optarg;
			break;
		default:
			fprintf(stderr,
				"usage: %s [--scripted | --sim | --udp ADDRESS|auto] "
				"[--list] [--case NAME]\n",
				argv[0]);
			return 2;
		}
	}
	return perform(&wish);
}
