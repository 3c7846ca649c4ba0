/* SPDX-License-Identifier: MIT */
/*
 * How an RDMA device behaves, as a program sees it through verbs.
 *
 *	conformance [--scripted] [--list] [--case NAME]
 *
 * Prints for each case its name, a tab and what was observed. Nothing is judged
 * here: compare.py compares it with the table in docs/conformance.md.
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "devices/scripted.h"
#include "kit.h"

static const struct conformance_case *const themes[] = {
	cases_device, cases_memory, cases_data,	 cases_order, cases_error,   cases_peer,
	cases_flush,  cases_post,   cases_queue, cases_state, cases_channel, cases_srq,
};

struct wish {
	bool scripted;
	bool list;
	const char *name;
};

static bool open_kit(struct kit *kit, struct snt_ctx **ctx_out,
		     struct scripted_fabric *fabric)
{
	struct snt_ctx_opts opts = { .size = sizeof(opts) };
	struct snt_adopted adopted;

	if (fabric) {
		scripted_eager(fabric, true);
		adopted = scripted_adopted(scripted_device_create(fabric, NULL));
		opts.adopted = &adopted;
		opts.adopted_count = 1;
	}
	if (snt_ctx_open(&opts, ctx_out)) {
		fprintf(stderr, "conformance: %s\n", snt_err_text());
		return false;
	}
	kit->device = snt_ctx_device(*ctx_out, 0);
	kit->control = snt_device_control(kit->device);
	kit->context = snt_device_context(kit->device);
	kit->at_once = fabric;
	kit->info.size = sizeof(kit->info);
	kit->gid.size = sizeof(kit->gid);
	snt_device_query(kit->device, &kit->info);
	for (unsigned i = 0; !snt_device_gid(kit->device, i, &kit->gid); i++)
		if ((int32_t)kit->gid.index == kit->info.gid_index)
			break;
	return true;
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
	struct scripted_fabric *fabric = NULL;
	struct snt_ctx *ctx = NULL;
	struct kit kit = { 0 };
	int failed = 0;

	if (wish->scripted)
		fabric = scripted_fabric_create(1);
	if (!wish->list && !open_kit(&kit, &ctx, fabric))
		return 1;
	if (!run(&kit, wish)) {
		fprintf(stderr, "conformance: no such case\n");
		failed = 1;
	}
	if (snt_ctx_close(ctx)) {
		fprintf(stderr, "conformance: %s\n", snt_err_text());
		failed = 1;
	}
	if (fabric && scripted_fabric_destroy(fabric)) {
		fprintf(stderr, "conformance: objects are left\n");
		failed = 1;
	}
	return failed;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "scripted", no_argument, NULL, 's' },
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
		case 'l':
			wish.list = true;
			break;
		case 'c':
			wish.name = optarg;
			break;
		default:
			fprintf(stderr,
				"usage: %s [--scripted] [--list] [--case NAME]\n",
				argv[0]);
			return 2;
		}
	}
	return perform(&wish);
}
