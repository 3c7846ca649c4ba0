/* SPDX-License-Identifier: MIT */
/*
 * One program for every event loop: what a program may rely on when a context is in it.
 *
 *	loop_epoll [--on scripted|sim|soft|verbs] [--adapter NAME] [--threads] [--long N]
 *		   [--seed N] [--seeds COUNT] [CASE...]
 *	loop_epoll --table | --list
 *
 * Prints TAP; with --table the adapter's column of the table in docs/use/event-loops.md, with
 * --list the column of the devices that each case runs on.
 */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/seeds.h"
#include "loop/adapters/cases.h"

unsigned long case_completions;

static const struct loop_case *const groups[] = {
	cases_talk, cases_stream, cases_wake,	cases_burst,
	cases_life, cases_time,	  cases_thread,
};

/* How --table ends where the loop cannot be had. */
#define NOT_HERE 77

#define GROUPS (sizeof(groups) / sizeof(groups[0]))

static const char *const kind_names[] = { "scripted", "sim", "soft", "verbs" };

struct plan {
	const struct driver *driver;
	enum device_kind kind;
	unsigned flags; /* only these, if any */
	bool is_table;
	uint64_t seed, seeds;
	char **names;
	int name_count;
};

static int usage(void)
{
	fprintf(stderr, "usage: [--on scripted|sim|soft|verbs] [--adapter NAME] "
			"[--threads] [--long N] [--seed N] [--seeds COUNT] [CASE...] | "
			"--table | --list\n");
	return 2;
}

static void list(void)
{
	for (unsigned group = 0; group < GROUPS; group++)
		for (const struct loop_case *at = groups[group]; at->name; at++) {
			const char *comma = "";

			if (at->flags & CASE_LONG)
				continue;
			printf("%s\t", at->name);
			for (unsigned i = 0; i < 4; i++) {
				if (!(at->kinds >> i & 1))
					continue;
				printf("%s%s", comma, kind_names[i]);
				comma = ", ";
			}
			printf("\n");
		}
}

static bool is_wanted(const struct plan *plan, const struct loop_case *at)
{
	if (!(at->kinds & plan->kind))
		return false;
	if (!plan->name_count)
		return plan->flags ? (at->flags & plan->flags) != 0
				   : !(at->flags & CASE_LONG);
	for (int i = 0; i < plan->name_count; i++)
		if (!strcmp(plan->names[i], at->name))
			return true;
	return false;
}

static void run_case(const struct plan *plan, const struct loop_case *at)
{
	uint64_t count = at->flags & CASE_SEEDS ? plan->seeds : 1;

	world_case = at->name;
	snprintf(world_words, sizeof(world_words), "yes");
	for (uint64_t i = 0; i < count; i++) {
		struct world world = { .driver = plan->driver,
				       .kind = plan->kind,
				       .random = plan->seed + i };

		world_seed = plan->seed + i;
		at->run(&world);
	}
}

/* Only async-signal-safe calls. */
static void hung(int signal)
{
	static const char text[] = "Bail out! nothing wakes the loop: ";

	(void)signal;
	if (write(1, text, sizeof(text) - 1) < 0 ||
	    write(1, world_case, strlen(world_case)) < 0 || write(1, "\n", 1) < 0)
		_exit(3);
	_exit(1);
}

static int run(const struct plan *plan)
{
	unsigned number = 0;
	int ret = plan->driver->start();

	if (ret && ret != -EPERM && ret != -EACCES && ret != -ENOSYS)
		driver_fail("the event loop", ret);
	if (ret) {
		printf("%s%s: %s\n", plan->is_table ? "" : "1..0 # SKIP ",
		       plan->driver->name, strerror(-ret));
		return plan->is_table ? NOT_HERE : 0;
	}
	plan->driver->stop();
	signal(SIGALRM, hung);
	for (unsigned group = 0; group < GROUPS; group++)
		for (const struct loop_case *at = groups[group]; at->name; at++) {
			if (!is_wanted(plan, at))
				continue;
			run_case(plan, at);
			number++;
			if (plan->is_table)
				printf("%s\t%s\n", at->name, world_words);
			else
				printf("ok %u - %s\n", number, at->name);
			fflush(stdout);
		}
	if (!plan->is_table)
		printf("1..%u\n", number);
	return number ? 0 : usage();
}

static const struct driver *driver_by_name(const char *name)
{
	for (unsigned i = 0; drivers[i]; i++)
		if (!strcmp(drivers[i]->name, name))
			return drivers[i];
	return NULL;
}

static enum device_kind kind_by_name(const char *name)
{
	for (unsigned i = 0; i < 4; i++)
		if (!strcmp(kind_names[i], name))
			return 1u << i;
	return 0;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "on", required_argument, NULL, 'o' },
		{ "adapter", required_argument, NULL, 'a' },
		{ "threads", no_argument, NULL, 't' },
		{ "long", required_argument, NULL, 'l' },
		{ "seed", required_argument, NULL, 's' },
		{ "seeds", required_argument, NULL, 'n' },
		{ "table", no_argument, NULL, 'T' },
		{ "list", no_argument, NULL, 'L' },
		{ 0 },
	};
	struct plan plan = {
		.driver = drivers[0], .kind = ON_SCRIPTED, .seed = 1, .seeds = 20
	};
	bool is_list = false;
	int option;

	while ((option = getopt_long(argc, argv, "", options, NULL)) >= 0) {
		if (option == 'o')
			plan.kind = kind_by_name(optarg);
		else if (option == 'a')
			plan.driver = driver_by_name(optarg);
		else if (option == 't')
			plan.flags |= CASE_THREADS;
		else if (option == 'l')
			case_completions = strtoul(optarg, NULL, 10);
		else if (option == 's')
			plan.seed = strtoull(optarg, NULL, 0);
		else if (option == 'n')
			plan.seeds = strtoull(optarg, NULL, 0);
		else if (option == 'T')
			plan.is_table = true;
		else if (option == 'L')
			is_list = true;
		else
			return usage();
	}
	if (case_completions)
		plan.flags |= CASE_LONG;
	plan.names = argv + optind;
	plan.name_count = argc - optind;
	if (is_list) {
		list();
		return 0;
	}
	return plan.driver && plan.kind ? run(&plan) : usage();
}
