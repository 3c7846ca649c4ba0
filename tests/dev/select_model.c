/* SPDX-License-Identifier: MIT */
/*
 * Device lists against a model: random lists over random hosts, judged once by
 * src/dev/select.c and once by the rules of sennit/ctx.h, written down as plainly
 * as they are stated there.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sennit/err.h>

#include "dev/select.h"
#include "lib/seeds.h"

#define ENTRIES 5
#define NAMES	6
#define PORTS	3

static const char *const names[NAMES] = { "mlx5_0", "mlx5_1", "mlx5_10",
					  "rxe0",   "rx",     "m" };

struct rule {
	char name[16];
	unsigned port; /* 0: any */
	bool exact, exclude;
};

/* Around an entry, where it must not make a difference. */
static const char *some_space(uint64_t *random)
{
	static const char *const spaces[] = { "", "", "", " ", "\t", "  " };

	return spaces[random_below(random, 6)];
}

/* A random list as text, and what it means. */
static unsigned make_list(uint64_t *random, char *text, size_t size, struct rule *rule)
{
	static const char *const marks[] = { "", "", "", "=", "^", "^=" };
	unsigned count = random_below(random, ENTRIES + 1);
	bool exact = false, exclude = false;
	size_t used = 0;

	text[0] = '\0';
	for (unsigned i = 0; i < count; i++) {
		const char *mark = marks[random_below(random, 6)];
		const char *name = names[random_below(random, NAMES)];
		size_t length = 1 + random_below(random, strlen(name));

		if (*mark) {
			exclude = *mark == '^';
			exact = strchr(mark, '=') != NULL;
		}
		rule[i] = (struct rule){ .exact = exact, .exclude = exclude };
		snprintf(rule[i].name, sizeof(rule[i].name), "%.*s", (int)length, name);
		rule[i].port =
			random_below(random, 3) ? 0 : 1 + random_below(random, PORTS);
		used += snprintf(text + used, size - used, "%s%s%s%s", i ? "," : "",
				 some_space(random), mark, rule[i].name);
		if (rule[i].port)
			used += snprintf(text + used, size - used, ":%u", rule[i].port);
		used += snprintf(text + used, size - used, "%s", some_space(random));
	}
	return count;
}

static bool covers(const struct rule *rule, const char *name, unsigned port)
{
	if (rule->port && rule->port != port)
		return false;
	return rule->exact ? !strcmp(rule->name, name)
			   : strstr(name, rule->name) == name;
}

/* 1, 0, or -EEXIST, by the words of the manual. */
static int judge(const struct rule *rule, unsigned count, const char *name,
		 unsigned port)
{
	unsigned inclusions = 0, selected = 0;

	for (unsigned i = 0; i < count; i++) {
		if (rule[i].exclude && covers(&rule[i], name, port))
			return 0;
		inclusions += !rule[i].exclude;
		selected += !rule[i].exclude && covers(&rule[i], name, port);
	}
	if (!inclusions)
		return 1;
	return selected > 1 ? -EEXIST : (int)selected;
}

static int run(uint64_t seed)
{
	uint64_t random = seed;
	struct snt__select select;
	struct rule rule[ENTRIES];
	char text[128];
	unsigned count = make_list(&random, text, sizeof(text), rule);

	if (snt__select_parse(&select, (struct snt__value){ text, "LIST" })) {
		printf("# \"%s\" was refused: %s\n", text, snt_err_text());
		return 1;
	}
	for (unsigned i = 0; i < NAMES; i++)
		for (unsigned port = 1; port <= PORTS; port++) {
			int expected = judge(rule, count, names[i], port);
			struct snt__entry *entry;
			int got = 0;

			if (snt__select_name(&select, names[i]))
				got = snt__select_port(&select, names[i], port, &entry);
			if (got == expected)
				continue;
			printf("# \"%s\", %s port %u: %d instead of %d\n", text,
			       names[i], port, got, expected);
			return 1;
		}
	return 0;
}

int main(int argc, char **argv)
{
	return seeds_main(argc, argv, 1, run);
}
