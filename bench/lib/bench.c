/* SPDX-License-Identifier: MIT */
#include "lib/bench.h"

#include <getopt.h>
#include <jansson.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CASES_MAX      128
#define PASSES_MAX     9999
#define PASSES_DEFAULT 501

struct one_case {
	const char *name;
	void (*prepare)(void *arg);
	bench_fn fn; /* NULL: the value is known */
	void *arg;
	const char *unit;
	unsigned count;
	int baseline; /* -1: none */
	double ns[PASSES_MAX];
	double median;
	double instructions; /* 0: not counted */
	double ratio;	     /* 0: that of the medians */
	double at_least;     /* the ratio; 0: whatever it is */
	const char *note;    /* why the ratio says nothing; NULL: it does */
};

struct bench {
	const char *name;
	const char *program;
	const char *only;
	bool exactly; /* that one case, not those that begin with it */
	bool instructions;
	bool json;
	bool limits;
	bool passes_given;
	unsigned passes;
	unsigned case_count;
	struct one_case one[CASES_MAX];
};

static void exit_with_usage(const char *program)
{
	fprintf(stderr,
		"usage: %s [--json] [--case PREFIX] [--passes 1..%d] [--instructions] "
		"[--limits]\n",
		program, PASSES_MAX);
	exit(2);
}

/* What the program was given, but for the core that it measures on. */
static cpu_set_t other_cores;

/* One core for all passes: moving between cores is the loudest noise. */
static void stay_on_this_core(void)
{
	int core = sched_getcpu();
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(core, &set);
	if (sched_getaffinity(0, sizeof(other_cores), &other_cores))
		CPU_ZERO(&other_cores);
	CPU_CLR(core, &other_cores);
	sched_setaffinity(0, sizeof(set), &set);
}

void bench_other_core(void)
{
	if (CPU_COUNT(&other_cores))
		sched_setaffinity(0, sizeof(other_cores), &other_cores);
}

struct bench *bench_begin(const char *name, int argc, char **argv)
{
	static const struct option options[] = {
		{ "json", no_argument, NULL, 'j' },
		{ "case", required_argument, NULL, 'c' },
		{ "exactly", required_argument, NULL, 'e' },
		{ "passes", required_argument, NULL, 'p' },
		{ "instructions", no_argument, NULL, 'i' },
		{ "limits", no_argument, NULL, 'l' },
		{ 0 },
	};
	struct bench *bench = calloc(1, sizeof(*bench));
	int option;

	if (!bench)
		exit(2);
	bench->name = name;
	bench->program = argv[0];
	bench->only = "";
	bench->passes = PASSES_DEFAULT;
	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (option == 'j')
			bench->json = true;
		else if (option == 'c')
			bench->only = optarg;
		else if (option == 'e')
			bench->only = optarg, bench->exactly = true;
		else if (option == 'i')
			bench->instructions = true;
		else if (option == 'l')
			bench->limits = true;
		else if (option == 'p')
			bench->passes = strtoul(optarg, NULL, 10),
			bench->passes_given = true;
		else
			exit_with_usage(argv[0]);
	}
	if (optind != argc || !bench->passes || bench->passes > PASSES_MAX)
		exit_with_usage(argv[0]);
	stay_on_this_core();
	return bench;
}

static int find_case(const struct bench *bench, const char *name)
{
	for (unsigned i = 0; i < bench->case_count; i++)
		if (name && !strcmp(bench->one[i].name, name))
			return i;
	return -1;
}

bool bench_wants(const struct bench *bench, const char *prefix)
{
	size_t only = strlen(bench->only), length = strlen(prefix);

	return !strncmp(prefix, bench->only, only < length ? only : length);
}

static void add_case(struct bench *bench, struct one_case one, const char *baseline)
{
	size_t length = strlen(bench->only) + bench->exactly;

	if (strncmp(one.name, bench->only, length))
		return;
	if (bench->case_count == CASES_MAX) {
		fprintf(stderr, "%s: more than %d cases\n", bench->name, CASES_MAX);
		exit(2);
	}
	one.baseline = find_case(bench, baseline);
	bench->one[bench->case_count++] = one;
}

void bench_prepared_case(struct bench *bench, const char *name,
			 void (*prepare)(void *arg), bench_fn fn, void *arg,
			 unsigned count, const char *baseline)
{
	struct one_case one = { .name = name,
				.prepare = prepare,
				.fn = fn,
				.arg = arg,
				.count = count,
				.unit = "ns" };

	add_case(bench, one, baseline);
}

void bench_case(struct bench *bench, const char *name, bench_fn fn, void *arg,
		unsigned count, const char *baseline)
{
	bench_prepared_case(bench, name, NULL, fn, arg, count, baseline);
}

void bench_value(struct bench *bench, const char *name, double value, const char *unit,
		 const char *baseline)
{
	struct one_case one = { .name = name, .median = value, .unit = unit };

	add_case(bench, one, baseline);
}

void bench_scaled(struct bench *bench, const char *name, double value, const char *unit,
		  const struct bench_scale *scale)
{
	struct one_case one = { .name = name, .median = value, .unit = unit };

	if (scale) {
		one.ratio = scale->ratio;
		one.at_least = scale->at_least;
		one.note = scale->note;
	}
	add_case(bench, one, scale ? scale->baseline : NULL);
}

unsigned bench_passes(struct bench *bench, unsigned unless_given)
{
	if (!bench->passes_given)
		bench->passes = unless_given;
	return bench->passes;
}

static double monotonic_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1e9 + now.tv_nsec;
}

static int by_value(const void *left, const void *right)
{
	double a = *(const double *)left, b = *(const double *)right;

	return (a > b) - (a < b);
}

double bench_median(double *values, unsigned count)
{
	qsort(values, count, sizeof(values[0]), by_value);
	return values[count / 2];
}

/* Its name is what callgrind is told to count. */
static __attribute__((noinline)) void bench_pass(const struct one_case *one)
{
	one->fn(one->arg, one->count);
}

static void prepare_case(const struct one_case *one)
{
	if (one->prepare)
		one->prepare(one->arg);
}

/* Counts the instructions of a case, by running it alone under callgrind. */
static void count_instructions(const struct bench *bench, struct one_case *one)
{
	char command[1024], line[256];
	unsigned long long collected = 0;
	FILE *pipe;

	snprintf(command, sizeof(command),
		 "valgrind --tool=callgrind --callgrind-out-file=/dev/null "
		 "--collect-atstart=no --toggle-collect=bench_pass '%s' "
		 "--exactly '%s' --passes 3 2>&1",
		 bench->program, one->name);
	pipe = popen(command, "r");
	while (pipe && fgets(line, sizeof(line), pipe)) {
		const char *found = strstr(line, "Collected : ");

		if (found)
			collected = strtoull(found + strlen("Collected : "), NULL, 10);
	}
	if (!pipe || pclose(pipe) || !collected) {
		fprintf(stderr,
			"%s: instructions cannot be counted; is valgrind "
			"installed?\n",
			bench->name);
		exit(1);
	}
	one->instructions = collected / 3.0 / one->count;
}

static void measure_pass(struct one_case *one, unsigned pass)
{
	double begin;

	prepare_case(one);
	begin = monotonic_ns();
	bench_pass(one);
	one->ns[pass] = (monotonic_ns() - begin) / one->count;
}

static void measure_cases(struct bench *bench)
{
	for (unsigned i = 0; i < bench->case_count; i++) {
		struct one_case *one = &bench->one[i];

		if (!one->fn)
			continue;
		prepare_case(one);
		one->fn(one->arg, one->count); /* warm up */
	}
	for (unsigned pass = 0; pass < bench->passes; pass++)
		for (unsigned i = 0; i < bench->case_count; i++)
			if (bench->one[i].fn)
				measure_pass(&bench->one[i], pass);
	for (unsigned i = 0; i < bench->case_count; i++) {
		struct one_case *one = &bench->one[i];

		if (!one->fn)
			continue;
		one->median = bench_median(one->ns, bench->passes);
		if (bench->instructions)
			count_instructions(bench, one);
	}
}

static double ratio_of(const struct bench *bench, const struct one_case *one)
{
	if (one->ratio > 0)
		return one->ratio;
	return one->median / bench->one[one->baseline].median;
}

static bool has_limit(const struct one_case *one)
{
	return one->baseline >= 0 && one->at_least > 0 && !one->note;
}

static bool misses_limit(const struct bench *bench, const struct one_case *one)
{
	return has_limit(one) && ratio_of(bench, one) < one->at_least;
}

static void print_json(const struct bench *bench, const struct one_case *one)
{
	json_t *object =
		json_pack("{s:s, s:s, s:f, s:s, s:f, s:i}", "bench", bench->name,
			  "case", one->name, "value", one->median, "unit", one->unit,
			  "best", one->fn ? one->ns[0] : one->median, "passes",
			  bench->passes);

	if (one->baseline >= 0) {
		json_object_set_new(object, "ratio", json_real(ratio_of(bench, one)));
		json_object_set_new(object, "baseline",
				    json_string(bench->one[one->baseline].name));
	}
	if (has_limit(one)) {
		json_object_set_new(object, "limit", json_real(one->at_least));
		json_object_set_new(object, "met",
				    json_boolean(!misses_limit(bench, one)));
	}
	if (one->note)
		json_object_set_new(object, "note", json_string(one->note));
	if (one->instructions > 0)
		json_object_set_new(object, "instructions",
				    json_real(one->instructions));
	json_dumpf(object, stdout, JSON_REAL_PRECISION(6) | JSON_PRESERVE_ORDER);
	putchar('\n');
	json_decref(object);
}

static void print_row(const struct bench *bench, const struct one_case *one)
{
	printf("%-10s %-28s %10.2f %s", bench->name, one->name, one->median, one->unit);
	if (one->instructions > 0)
		printf(" %8.0f instructions", one->instructions);
	if (one->baseline >= 0)
		printf("  %6.2fx %s", ratio_of(bench, one),
		       bench->one[one->baseline].name);
	if (has_limit(one))
		printf("  limit %.2f %s", one->at_least,
		       misses_limit(bench, one) ? "MISSED" : "met");
	if (one->note)
		printf("  not comparable: %s", one->note);
	putchar('\n');
}

int bench_end(struct bench *bench)
{
	int status;

	measure_cases(bench);
	for (unsigned i = 0; i < bench->case_count; i++)
		(bench->json ? print_json : print_row)(bench, &bench->one[i]);
	if (!bench->case_count)
		fprintf(stderr, "%s: no case begins with \"%s\"\n", bench->name,
			bench->only);
	status = bench->case_count ? 0 : 2;
	for (unsigned i = 0; bench->limits && i < bench->case_count; i++)
		if (misses_limit(bench, &bench->one[i]))
			status = 1;
	free(bench);
	return status;
}
