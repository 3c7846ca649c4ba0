/* SPDX-License-Identifier: MIT */
#include "search.h"

#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SECONDS_MAX    60 /* for one seed; it takes milliseconds */
#define SECONDS_SHRINK 5

/* How a run ended, by the format of what it said; shared with children. */
struct verdict {
	char text[256]; /* "": well */
};

static struct {
	const struct search *search;
	const char *program;
	struct verdict *verdict;
	uint64_t seeds, packets, bytes, events, virtual_ns;
	uint64_t hash, seen;
	char replay[512]; /* ready to be written by a signal handler */
} state;

/*
 * What went wrong
 */

int search_wrong_args(const char *format, va_list args)
{
	snprintf(state.verdict->text, sizeof(state.verdict->text), "%s", format);
	printf("# ");
	vprintf(format, args);
	printf("\n");
	return -1;
}

int search_wrong(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	search_wrong_args(format, args);
	va_end(args);
	return -1;
}

void search_saw(uint64_t what)
{
	state.seen = (state.seen ^ what) * 0x9e3779b97f4a7c15;
	state.seen ^= state.seen >> 32;
}

void search_count(const struct snt__sim *sim)
{
	state.packets += sim->stats.sent;
	state.bytes += sim->stats.sent_bytes;
	state.events += sim->stats.events;
	state.virtual_ns += sim->now;
	state.hash = state.seen;
	if (!state.search->has_addresses)
		state.hash ^= snt__sim_hash(sim);
}

static void describe_plan(const struct search_plan *plan, char *text, size_t size)
{
	int n = snprintf(text, size, "%s --seed %" PRIu64 " --seeds 1", state.program,
			 plan->seed);
	const char *separator = " --without ";

	if (plan->ops < state.search->ops_max)
		n += snprintf(text + n, size - n, " --ops %u", plan->ops);
	for (unsigned i = 0; state.search->kinds[i] && n < (int)size; i++)
		if (!search_has(plan, i)) {
			n += snprintf(text + n, size - n, "%s%s", separator,
				      state.search->kinds[i]);
			separator = ",";
		}
}

static void say_replay(const char *why)
{
	const char *lines[] = { "# ", why,
				"\nnot ok 1 - crash\n# replay: ", state.replay, "\n" };

	for (unsigned i = 0; i < sizeof(lines) / sizeof(lines[0]); i++)
		if (write(STDOUT_FILENO, lines[i], strlen(lines[i])) < 0)
			_exit(2);
}

static void on_signal(int number)
{
	say_replay(number == SIGALRM ? "hangs" : "crashed");
	signal(number, SIG_DFL);
	if (number == SIGALRM)
		_exit(1);
	raise(number);
}

static void on_death(void)
{
	say_replay("a sanitizer has found something");
}

/* Where there is a sanitizer, it says more about a crash than we could. */
extern void __sanitizer_set_death_callback(void (*callback)(void))
	__attribute__((weak));

static void catch_crashes(void)
{
	signal(SIGALRM, on_signal);
	signal(SIGABRT, on_signal);
	if (__sanitizer_set_death_callback) {
		__sanitizer_set_death_callback(on_death);
		return;
	}
	signal(SIGSEGV, on_signal);
	signal(SIGBUS, on_signal);
}

/*
 * Running
 */

static int run_plan(const struct search_plan *plan)
{
	int ret;

	describe_plan(plan, state.replay, sizeof(state.replay));
	state.verdict->text[0] = '\0';
	state.seen = 0;
	alarm(SECONDS_MAX);
	ret = state.search->run(plan);
	alarm(0);
	state.seeds++;
	return ret;
}

/* In a child, so that it may crash. Does it fail in this way? */
static bool fails_in_child(const struct search_plan *plan, const char *how)
{
	pid_t child;

	fflush(stdout);
	snprintf(state.verdict->text, sizeof(state.verdict->text), "crash");
	child = fork();
	if (child == 0) {
		if (!freopen("/dev/null", "w", stdout) ||
		    !freopen("/dev/null", "w", stderr))
			_exit(2);
		alarm(SECONDS_SHRINK);
		if (!state.search->run(plan))
			state.verdict->text[0] = '\0';
		_exit(0);
	}
	if (child < 0 || waitpid(child, NULL, 0) != child)
		return false;
	return !strcmp(state.verdict->text, how);
}

static void drop_kinds(struct search_plan *plan, const char *how)
{
	for (unsigned i = 0; state.search->kinds[i]; i++) {
		struct search_plan less = *plan;

		less.faults &= ~(1u << i);
		if (less.faults != plan->faults && fails_in_child(&less, how))
			*plan = less;
	}
}

static void drop_ops(struct search_plan *plan, const char *how)
{
	uint32_t least = 0;

	while (plan->ops - least > 1) {
		struct search_plan less = *plan;

		less.ops = least + (plan->ops - least) / 2;
		if (fails_in_child(&less, how))
			*plan = less;
		else
			least = less.ops;
	}
}

static void shrink_plan(struct search_plan plan)
{
	char how[sizeof(state.verdict->text)], text[512];

	if (fails_in_child(&plan, ""))
		return;
	memcpy(how, state.verdict->text, sizeof(how));
	if (!fails_in_child(&plan, how)) {
		printf("# does not fail twice in the same way\n");
		return;
	}
	drop_kinds(&plan, how);
	drop_ops(&plan, how);
	drop_kinds(&plan, how);
	describe_plan(&plan, text, sizeof(text));
	printf("# shrunk: %s\n", text);
}

static int search_seeds(struct search_plan plan, uint64_t count, bool shrinking)
{
	const char *capture = plan.capture;

	for (uint64_t i = 0; i < count; i++, plan.seed++) {
		plan.capture = i + 1 == count ? capture : NULL;
		/* Crashes too are to be shrunk. */
		if (shrinking && count == 1)
			shrink_plan(plan);
		if (!run_plan(&plan))
			continue;
		printf("not ok 1 - seed %" PRIu64 "\n", plan.seed);
		printf("# replay: %s\n", state.replay);
		if (shrinking && count > 1)
			shrink_plan(plan);
		return 1;
	}
	printf("ok 1 - %" PRIu64 " seeds\n", count);
	return 0;
}

/*
 * Trace hashes
 */

static int compare_hashes(struct search_plan plan, const char *path)
{
	FILE *file = fopen(path, "r");
	unsigned bad = 0, count = 0;
	uint64_t hash;

	if (!file) {
		perror(path);
		return 2;
	}
	while (fscanf(file, "%" SCNu64 " %" SCNx64, &plan.seed, &hash) == 2) {
		for (unsigned twice = 0; twice < 2; twice++) {
			if (!run_plan(&plan) && state.hash == hash)
				continue;
			printf("# seed %" PRIu64 ": %016" PRIx64 ", not %016" PRIx64
			       "\n# replay: %s\n",
			       plan.seed, state.hash, hash, state.replay);
			bad++;
		}
		count++;
	}
	fclose(file);
	if (bad)
		printf("# if what is sent was meant to change: %s --seeds %u "
		       "--write-hashes %s\n",
		       state.program, count, path);
	printf("%s 1 - %u runs have the same trace as everywhere\n",
	       bad || !count ? "not ok" : "ok", count);
	return bad || !count;
}

static int write_hashes(struct search_plan plan, uint64_t count, const char *path)
{
	FILE *file = fopen(path, "w");
	int failed = !file;

	for (uint64_t i = 0; !failed && i < count; i++, plan.seed++) {
		failed = run_plan(&plan);
		fprintf(file, "%" PRIu64 " %016" PRIx64 "\n", plan.seed, state.hash);
	}
	if (!file || fclose(file)) {
		perror(path);
		failed = 1;
	}
	printf("%s 1 - %s\n", failed ? "not ok" : "ok", path);
	return failed;
}

/*
 * The command line
 */

struct wish {
	struct search_plan plan;
	uint64_t seeds;
	bool shrinking;
	const char *hashes, *write_hashes;
};

/* False: there is no such kind. */
static bool take_away(struct search_plan *plan, char *list)
{
	for (char *rest = list, *word; (word = strsep(&rest, ","));) {
		unsigned i = 0;

		while (state.search->kinds[i] &&
		       strcmp(state.search->kinds[i], word) != 0)
			i++;
		if (!state.search->kinds[i]) {
			fprintf(stderr, "no such fault: %s\n", word);
			return false;
		}
		plan->faults &= ~(1u << i);
	}
	return true;
}

static bool read_options(int argc, char **argv, struct wish *wish)
{
	static const struct option options[] = {
		{ "seed", required_argument, NULL, 's' },
		{ "seeds", required_argument, NULL, 'n' },
		{ "ops", required_argument, NULL, 'o' },
		{ "without", required_argument, NULL, 'w' },
		{ "shrink", no_argument, NULL, 'k' },
		{ "capture", required_argument, NULL, 'c' },
		{ "verbose", no_argument, NULL, 'v' },
		{ "hashes", required_argument, NULL, 'h' },
		{ "write-hashes", required_argument, NULL, 'W' },
		{ 0 },
	};
	int option;

	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (option == 's')
			wish->plan.seed = strtoull(optarg, NULL, 0);
		else if (option == 'n')
			wish->seeds = strtoull(optarg, NULL, 0);
		else if (option == 'o')
			wish->plan.ops = strtoul(optarg, NULL, 0);
		else if (option == 'w' && take_away(&wish->plan, optarg))
			continue;
		else if (option == 'k')
			wish->shrinking = true;
		else if (option == 'c')
			wish->plan.capture = optarg;
		else if (option == 'v')
			wish->plan.verbose = true;
		else if (option == 'h')
			wish->hashes = optarg;
		else if (option == 'W')
			wish->write_hashes = optarg;
		else
			return false;
	}
	return true;
}

static double seconds_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec + now.tv_nsec / 1e9;
}

static void say_speed(double seconds)
{
	printf("# %" PRIu64 " seeds, %.3g packets, %.3g s of virtual time in %.1f s: "
	       "%.3g packets/s, %.3g MB/s, %.3g virtual s/s\n",
	       state.seeds, (double)state.packets, state.virtual_ns / 1e9, seconds,
	       state.packets / seconds, state.bytes / seconds / 1e6,
	       state.virtual_ns / 1e9 / seconds);
}

int search_main(int argc, char **argv, const struct search *search)
{
	struct wish wish = {
		.plan = { .seed = 1, .ops = search->ops_max, .faults = UINT32_MAX },
		.seeds = search->seeds_default,
	};
	double begin = seconds_now();
	int ret;

	state.search = search;
	state.program = argv[0];
	state.verdict = mmap(NULL, sizeof(*state.verdict), PROT_READ | PROT_WRITE,
			     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (state.verdict == MAP_FAILED || !read_options(argc, argv, &wish))
		return 2;
	catch_crashes();
	printf("1..1\n");
	if (wish.hashes)
		ret = compare_hashes(wish.plan, wish.hashes);
	else if (wish.write_hashes)
		ret = write_hashes(wish.plan, wish.seeds, wish.write_hashes);
	else
		ret = search_seeds(wish.plan, wish.seeds, wish.shrinking);
	say_speed(seconds_now() - begin);
	return ret;
}
