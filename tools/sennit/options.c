/* SPDX-License-Identifier: MIT */
#include "options.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"

/* More options than any subcommand has. */
#define OPTIONS_MAX 96

/* The first value that getopt_long() returns for options without a letter. */
#define FIRST_CODE 256
#define CODE_HELP  (FIRST_CODE + OPTIONS_MAX)
#define CODE_JSON  (CODE_HELP + 1)

/*
 * Values
 */

int options_number(const char *text, uint64_t *value_out)
{
	static const char suffix[] = "kmgt";
	const char *found;
	uint64_t value;
	char *end;

	if (!isdigit((unsigned char)*text))
		return -EINVAL;
	errno = 0;
	value = strtoull(text, &end, 0);
	if (errno)
		return -EINVAL;
	found = *end ? strchr(suffix, tolower((unsigned char)*end)) : NULL;
	if (found) {
		unsigned shift = 10 * (unsigned)(found - suffix + 1);

		if (value > UINT64_MAX >> shift)
			return -EINVAL;
		value <<= shift;
		end++;
	}
	if (*end)
		return -EINVAL;
	*value_out = value;
	return 0;
}

int options_time(const char *text, uint64_t *ns_out)
{
	static const struct {
		const char *name;
		double ns;
	} unit[] = { { "", 1e9 }, { "s", 1e9 },	 { "ms", 1e6 },	  { "us", 1e3 },
		     { "ns", 1 }, { "m", 60e9 }, { "min", 60e9 }, { "h", 3600e9 } };
	double value;
	char *end;

	if (!isdigit((unsigned char)*text) && *text != '.')
		return -EINVAL;
	value = strtod(text, &end);
	for (unsigned i = 0; i < sizeof(unit) / sizeof(*unit); i++) {
		if (strcmp(end, unit[i].name))
			continue;
		value *= unit[i].ns;
		if (!isfinite(value) || value >= 0x1p63)
			return -EINVAL;
		*ns_out = (uint64_t)llround(value);
		return 0;
	}
	return -EINVAL;
}

/* The position of a word in "a|b|c"; -EINVAL if it is not one of these. */
static int choice_of(const char *choices, const char *text)
{
	size_t length = strlen(text);

	for (int i = 0;; i++) {
		size_t span = strcspn(choices, "|");

		if (span == length && !memcmp(choices, text, span))
			return i;
		if (!choices[span])
			return -EINVAL;
		choices += span + 1;
	}
}

static int refuse_value(const struct option_entry *entry, const char *text)
{
	switch (entry->kind) {
	case OPTION_NUMBER:
		return output_usage("--%s: \"%s\" is not a number such as 4096 or 4k",
				    entry->name, text);
	case OPTION_TIME:
		return output_usage("--%s: \"%s\" is not a time such as 5s or 20ms",
				    entry->name, text);
	default:
		return output_usage("--%s: \"%s\" is not one of %s", entry->name, text,
				    entry->argument);
	}
}

static int out_of_range(const struct option_entry *entry, const char *text,
			uint64_t value)
{
	uint64_t unit = entry->kind == OPTION_TIME ? 1000000 : 1;
	const char *name = entry->kind == OPTION_TIME ? " ms" : "";

	if (value >= entry->min && (!entry->max || value <= entry->max))
		return 0;
	if (!entry->max)
		return output_usage("--%s: %s is too small; the minimum is %llu%s",
				    entry->name, text,
				    (unsigned long long)(entry->min / unit), name);
	return output_usage("--%s: %s is out of range; it must be from %llu to %llu%s",
			    entry->name, text, (unsigned long long)(entry->min / unit),
			    (unsigned long long)(entry->max / unit), name);
}

static int store_option(const struct option_entry *entry, const char *text, void *opts)
{
	void *place = (char *)opts + entry->offset; /* of the table that it is in */
	uint64_t value = 0;
	int choice;

	switch (entry->kind) {
	case OPTION_FLAG:
		*(bool *)place = true;
		return 0;
	case OPTION_TEXT:
		*(const char **)place = text;
		return 0;
	case OPTION_NUMBER:
	case OPTION_TIME:
		if (entry->kind == OPTION_TIME ? options_time(text, &value)
					       : options_number(text, &value))
			return refuse_value(entry, text);
		*(uint64_t *)place = value;
		return out_of_range(entry, text, value);
	case OPTION_CHOICE:
		choice = choice_of(entry->argument, text);
		if (choice < 0)
			return refuse_value(entry, text);
		*(int *)place = choice;
		return 0;
	case OPTION_CALL:
		return entry->call(opts, text);
	case OPTION_GROUP:
	case OPTION_TABLE:
		break;
	}
	return 0;
}

/*
 * Words that are nearly right
 */

/* How many letters must be changed, added, left out or swapped with their neighbour, to
 * turn one word into the other. */
static unsigned edit_distance(const char *a, const char *b)
{
	enum {
		LETTERS_MAX = 32
	};
	unsigned row[3][LETTERS_MAX + 1] = { 0 };
	size_t a_length = strlen(a), b_length = strlen(b);

	if (a_length > LETTERS_MAX || b_length > LETTERS_MAX)
		return LETTERS_MAX;
	for (size_t j = 0; j <= b_length; j++)
		row[0][j] = (unsigned)j;
	for (size_t i = 1; i <= a_length; i++) {
		unsigned *now = row[i % 3], *last = row[(i + 2) % 3],
			 *before = row[(i + 1) % 3];

		now[0] = (unsigned)i;
		for (size_t j = 1; j <= b_length; j++) {
			unsigned best = last[j - 1] + (a[i - 1] != b[j - 1]);

			if (last[j] + 1 < best)
				best = last[j] + 1;
			if (now[j - 1] + 1 < best)
				best = now[j - 1] + 1;
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] &&
			    a[i - 2] == b[j - 1] && before[j - 2] + 1 < best)
				best = before[j - 2] + 1;
			now[j] = best;
		}
	}
	return row[a_length % 3][b_length];
}

const char *options_nearest(const char *typed,
			    const char *(*word)(const void *arg, size_t i),
			    const void *arg)
{
	/* Half of a word may be wrong, but not all of a short one. */
	unsigned best = (unsigned)strlen(typed) / 2 + 1;
	const char *nearest = NULL, *other;

	for (size_t i = 0; (other = word(arg, i)); i++) {
		unsigned far = edit_distance(typed, other);

		if (far < best && far < strlen(other)) {
			best = far;
			nearest = other;
		}
	}
	return nearest;
}

static const char *option_name(const void *arg, size_t i)
{
	const struct option *table = arg;

	return table[i].name;
}

/*
 * The command line
 */

struct known {
	const struct option_entry *entry;
	size_t base;
};

struct parser {
	const struct command *command;
	char letters[2 * OPTIONS_MAX + 4];
	size_t letter_count;
	struct option names[OPTIONS_MAX + 3];
	struct known known[OPTIONS_MAX]; /* by code */
	size_t count;
};

static void each_from(const struct option_entry *entry, size_t base,
		      void (*each)(void *arg, const struct option_entry *entry,
				   size_t base),
		      void *arg)
{
	for (; entry && (entry->name || entry->help || entry->table); entry++) {
		if (entry->kind == OPTION_TABLE)
			each_from(entry->table, base + entry->offset, each, arg);
		else
			each(arg, entry, base);
	}
}

void options_each(const struct option_entry *table,
		  void (*each)(void *arg, const struct option_entry *entry,
			       size_t base),
		  void *arg)
{
	each_from(table, 0, each, arg);
}

static void add_option(void *arg, const struct option_entry *entry, size_t base)
{
	struct parser *parser = arg;
	bool has_argument = entry->kind != OPTION_FLAG;

	if (entry->kind == OPTION_GROUP || parser->count == OPTIONS_MAX)
		return;
	parser->known[parser->count] = (struct known){ entry, base };
	parser->names[parser->count] = (struct option){
		.name = entry->name,
		.has_arg = has_argument ? required_argument : no_argument,
		.val = FIRST_CODE + (int)parser->count,
	};
	parser->count++;
	if (!entry->letter)
		return;
	parser->letters[parser->letter_count++] = entry->letter;
	if (has_argument)
		parser->letters[parser->letter_count++] = ':';
}

static void make_parser(struct parser *parser)
{
	parser->letter_count =
		(size_t)sprintf(parser->letters, "%s:h",
				parser->command->stops_at_argument ? "+" : "");
	options_each(parser->command->options, add_option, parser);
	parser->names[parser->count] =
		(struct option){ "help", no_argument, NULL, CODE_HELP };
	parser->names[parser->count + 1] =
		(struct option){ "json", no_argument, NULL, CODE_JSON };
}

static struct known option_of(const struct parser *parser, int code)
{
	size_t i = 0;

	if (code >= FIRST_CODE)
		return parser->known[code - FIRST_CODE];
	while (parser->known[i].entry->letter != code)
		i++;
	return parser->known[i];
}

static int store_known(struct known known, const char *text, void *opts)
{
	return store_option(known.entry, text, (char *)opts + known.base);
}

/* Is it an option of another program? With @letter 0 it is looked up by name. */
static const struct option_hint *find_hint(const struct command *command, int letter,
					   const char *name)
{
	const struct option_hint *hint = command->hints;

	while (hint && hint->name &&
	       (letter ? hint->letter != letter : strcmp(hint->name, name) != 0))
		hint++;
	return hint && hint->name ? hint : NULL;
}

/* getopt_long() does not know it: suggests the option that was meant. */
static int refuse_option(const struct parser *parser, const char *typed)
{
	const struct option_hint *hint;
	char name[64];
	const char *nearest;

	if (optopt && optopt < FIRST_CODE) {
		hint = find_hint(parser->command, optopt, "");
		if (hint)
			return output_usage("-%c %s", optopt, hint->sentence);
		return output_usage("unknown option -%c", optopt);
	}
	if (optopt)
		return output_usage("%.*s takes no argument", (int)strcspn(typed, "="),
				    typed);
	snprintf(name, sizeof(name), "%.*s", (int)strcspn(typed + 2, "="), typed + 2);
	hint = find_hint(parser->command, 0, name);
	if (hint)
		return output_usage("--%s %s", name, hint->sentence);
	nearest = options_nearest(name, option_name, parser->names);
	if (nearest)
		return output_usage("unknown option --%s; did you mean --%s?", name,
				    nearest);
	return output_usage("unknown option --%s", name);
}

static int store_defaults(const struct parser *parser, void *opts)
{
	for (size_t i = 0; i < parser->count; i++) {
		const char *standard = parser->known[i].entry->standard;
		int status =
			standard ? store_known(parser->known[i], standard, opts) : 0;

		if (status)
			return status;
	}
	return 0;
}

static int check_arguments(const struct command *command, int count, char **argument)
{
	if (count < command->argument_min)
		return output_usage("missing argument; usage: sennit %s [OPTION]... %s",
				    command->name, command->arguments);
	if (command->argument_max >= 0 && count > command->argument_max)
		return output_usage(
			"unexpected argument \"%s\"; usage: sennit %s [OPTION]... %s",
			argument[command->argument_max], command->name,
			command->arguments);
	return 0;
}

/* --json applies to messages about earlier options, too. */
static void look_for_json(const struct command *command, int argc, char **argv)
{
	for (int i = 1; i < argc && strcmp(argv[i], "--"); i++) {
		if (command->stops_at_argument && *argv[i] != '-')
			return;
		output.json |= !strcmp(argv[i], "--json");
	}
}

/* Options are never numbers. */
static void drop_signs(int argc, char **argv)
{
	for (int i = 1; i < argc; i++)
		if (argv[i][0] == '-' && isdigit((unsigned char)argv[i][1]))
			argv[i]++;
}

int options_parse(const struct command *command, int argc, char **argv, void *opts)
{
	struct parser parser = { .command = command };
	int code, status;

	make_parser(&parser);
	look_for_json(command, argc, argv);
	if (command->ignores_signs)
		drop_signs(argc, argv);
	status = store_defaults(&parser, opts);
	opterr = 0;
	optind = 0;
	while (!status && (code = getopt_long(argc, argv, parser.letters, parser.names,
					      NULL)) >= 0) {
		if (code == CODE_HELP || code == 'h') {
			command_help(command);
			return -1 - STATUS_OK;
		}
		if (code == CODE_JSON)
			continue;
		if (code == '?')
			status = refuse_option(&parser, argv[optind - 1]);
		else if (code == ':')
			status = output_usage("%s needs an argument", argv[optind - 1]);
		else
			status = store_known(option_of(&parser, code), optarg, opts);
	}
	if (!status)
		status = check_arguments(command, argc - optind, argv + optind);
	return status ? -1 - status : optind;
}
