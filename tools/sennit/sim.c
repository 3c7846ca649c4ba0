/* SPDX-License-Identifier: MIT */
/* sennit sim: runs a seed again on the simulators built next to this program. */
#include <errno.h>
#include <fnmatch.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "command.h"
#include "commands.h"
#include "place.h"

struct sim_opts {
	const char *build;
	uint64_t seed;
	uint64_t seeds;
	uint64_t ops;
	const char *without;
	const char *capture;
	bool verbose;
	bool shrink;
};

/* Simulators are programs of tests/MODULE/ in a build folder. Those with a fabric take all
 * the options, models only seeds. */
static const struct {
	const char *files;
	const char *dropped; /* of a file's name, to be ours */
	bool has_fabric;
} kinds[] = {
	{ "*_sim", "_sim", true },
	{ "*_model", "", false },
};
#define KIND_COUNT (sizeof(kinds) / sizeof(*kinds))

static int no_simulators(void)
{
	return output_failed(
		"build the source tree (`make build`), then run sennit from its build "
		"folder, or name that folder with --build",
		"there are no simulators beside this program: they are part of the "
		"source tree's tests, and are not installed");
}

static int find_build(const struct sim_opts *opts, char path[PATH_MAX])
{
	char sims[PATH_MAX];

	if (opts->build) {
		if (snprintf(sims, sizeof(sims), "%s/tests/soft", opts->build) <
			    (int)sizeof(sims) &&
		    !access(sims, R_OK) && realpath(opts->build, path))
			return STATUS_OK;
		return output_failed("it is the one that `make build` or meson made",
				     "%s is no build folder of sennit with tests",
				     opts->build);
	}
	if (place_find("../../tests/soft", sims) && place_find("../..", path))
		return STATUS_OK;
	return no_simulators();
}

/* Its files, none if there are none. The caller frees them. */
static void find_programs(const char *build, const char *name, glob_t *found)
{
	char pattern[PATH_MAX];

	memset(found, 0, sizeof(*found));
	if (snprintf(pattern, sizeof(pattern), "%s/tests/*/%s", build, name) <
	    (int)sizeof(pattern))
		glob(pattern, 0, NULL, found);
}

/* "traffic" of BUILD/tests/soft/traffic_sim, which is in tests/soft. */
static void list_program(const char *build, const char *path, size_t kind)
{
	const char *folder = path + strlen(build) + 1, *file = strrchr(path, '/') + 1;
	char name[NAME_MAX + 1];

	snprintf(name, sizeof(name), "%.*s",
		 (int)(strlen(file) - strlen(kinds[kind].dropped)), file);
	output_text("%-14s%.*s\n", name, (int)(file - 1 - folder), folder);
	if (output.json) {
		json_t *object = output_object();

		json_object_set_new(object, "name", json_string(name));
		json_object_set_new(object, "fabric",
				    json_boolean(kinds[kind].has_fabric));
		output_json(object);
	}
}

static int list_all_programs(const char *build)
{
	size_t listed = 0;

	for (size_t i = 0; i < KIND_COUNT; i++) {
		glob_t found;

		find_programs(build, kinds[i].files, &found);
		for (size_t j = 0; j < found.gl_pathc; j++)
			list_program(build, found.gl_pathv[j], i);
		listed += found.gl_pathc;
		globfree(&found);
	}
	return listed ? STATUS_OK : no_simulators();
}

/*
 * Running one
 */

struct words {
	char *word[24];
	size_t count;
};

__attribute__((format(printf, 2, 3))) static void add_word(struct words *words,
							   const char *format, ...)
{
	va_list args;
	char *text;

	va_start(args, format);
	if (words->count + 1 < sizeof(words->word) / sizeof(*words->word) &&
	    vasprintf(&text, format, args) >= 0)
		words->word[words->count++] = text;
	va_end(args);
}

static void make_line(const struct sim_opts *opts, const char *path, bool has_fabric,
		      struct words *words)
{
	add_word(words, "%s", path);
	add_word(words, "--seed");
	add_word(words, "%llu", (unsigned long long)opts->seed);
	add_word(words, "--seeds");
	add_word(words, "%llu", (unsigned long long)opts->seeds);
	if (!has_fabric)
		return;
	if (opts->ops) {
		add_word(words, "--ops");
		add_word(words, "%llu", (unsigned long long)opts->ops);
	}
	if (opts->without) {
		add_word(words, "--without");
		add_word(words, "%s", opts->without);
	}
	if (opts->capture) {
		add_word(words, "--capture");
		add_word(words, "%s", opts->capture);
	}
	if (opts->verbose)
		add_word(words, "--verbose");
	if (opts->shrink)
		add_word(words, "--shrink");
}

/* Its output is read line by line, and passed on or kept for JSON. */
static void read_lines(FILE *from, json_t *object)
{
	json_t *lines = json_array();
	char *line = NULL;
	size_t size = 0;

	while (getline(&line, &size, from) >= 0) {
		line[strcspn(line, "\n")] = '\0';
		output_text("%s\n", line);
		if (output.json)
			json_array_append_new(lines, json_string(line));
		if (!strncmp(line, "# replay: ", 10))
			json_object_set_new(object, "replay", json_string(line + 10));
	}
	free(line);
	json_object_set_new(object, "lines", lines);
}

static int start_program(char **line, FILE **out, pid_t *child)
{
	int ends[2];

	if (pipe(ends))
		return -1;
	*child = fork();
	if (*child == 0) {
		dup2(ends[1], STDOUT_FILENO);
		close(ends[0]);
		close(ends[1]);
		execv(line[0], line);
		_exit(127);
	}
	close(ends[1]);
	*out = *child < 0 ? NULL : fdopen(ends[0], "r");
	return *out ? 0 : -1;
}

static int run_line(const struct sim_opts *opts, const char *name, char **line)
{
	json_t *object = output_object();
	int status = 0;
	FILE *out;
	pid_t child;

	if (start_program(line, &out, &child)) {
		json_decref(object);
		return output_failed(NULL, "%s: %s", line[0], strerror(errno));
	}
	json_object_update_new(object, json_pack("{s:s, s:I, s:I}", "name", name,
						 "seed", (json_int_t)opts->seed,
						 "seeds", (json_int_t)opts->seeds));
	read_lines(out, object);
	fclose(out);
	waitpid(child, &status, 0);
	json_object_set_new(object, "ok", json_boolean(!status));
	if (output.json)
		output_json(json_incref(object));
	json_decref(object);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
		return output_failed("build it: ninja -C BUILD", "%s could not be run",
				     line[0]);
	if (status && !opts->shrink && !opts->verbose)
		output_note(
			"to see more: --verbose, --capture FILE; to find less that fails in the "
			"same way: --shrink");
	return status ? STATUS_FAILED : STATUS_OK;
}

static int simulate_kind(const struct sim_opts *opts, const char *path,
			 const char *name, size_t kind)
{
	struct words words = { 0 };
	int status;

	if (!kinds[kind].has_fabric && (opts->verbose || opts->shrink ||
					opts->capture || opts->ops || opts->without))
		output_note("%s has no fabric: only --seed and --seeds mean something",
			    name);
	make_line(opts, path, kinds[kind].has_fabric, &words);
	status = run_line(opts, name, words.word);
	for (size_t i = 0; i < words.count; i++)
		free(words.word[i]);
	return status;
}

static int simulate_by_name(const struct sim_opts *opts, const char *build,
			    const char *name)
{
	for (size_t i = 0; i < KIND_COUNT; i++) {
		char file[NAME_MAX + 1];
		glob_t found;
		int status;

		/* No more than a name, and one of this kind. */
		snprintf(file, sizeof(file), "%s%s", name, kinds[i].dropped);
		if (strpbrk(name, "/*?[\\") || fnmatch(kinds[i].files, file, 0))
			continue;
		find_programs(build, file, &found);
		if (!found.gl_pathc) {
			globfree(&found);
			continue;
		}
		status = simulate_kind(opts, found.gl_pathv[0], name, i);
		globfree(&found);
		return status;
	}
	return output_usage("there is no simulator \"%s\"; `sennit sim` lists them",
			    name);
}

static int sim_run(const void *opts_in, int count, char **argument)
{
	const struct sim_opts *opts = opts_in;
	char build[PATH_MAX];
	int status = find_build(opts, build);

	if (status)
		return status;
	return count ? simulate_by_name(opts, build, argument[0])
		     : list_all_programs(build);
}

const struct command sim_command = {
	.name = "sim",
	.summary = "replay a seed on the simulators of the source tree, and explain it",
	.arguments = "[NAME]",
	.description =
		"The tests of the library search seeds on simulated fabrics, in "
		"virtual time, where packets get lost, links are cut and devices die. "
		"Everything that a seed brings about, it brings about again; this runs "
		"it, and can say what happens, write its packets for Wireshark, or "
		"look for less that fails in the same way. Without a name it lists "
		"what there is.\n\n"
		"Simulators are found in the build folder that this program was built "
		"in. They are not installed.",
	.options =
		(const struct option_entry[]){
			{ .kind = OPTION_NUMBER,
			  .letter = 's',
			  .name = "seed",
			  .argument = "N",
			  .offset = offsetof(struct sim_opts, seed),
			  .standard = "1",
			  .help = "the first seed" },
			{ .kind = OPTION_NUMBER,
			  .letter = 'n',
			  .name = "seeds",
			  .argument = "COUNT",
			  .offset = offsetof(struct sim_opts, seeds),
			  .standard = "1",
			  .min = 1,
			  .help = "how many" },
			{ .kind = OPTION_FLAG,
			  .letter = 'v',
			  .name = "verbose",
			  .offset = offsetof(struct sim_opts, verbose),
			  .help = "say what happens" },
			{ .kind = OPTION_TEXT,
			  .name = "capture",
			  .argument = "FILE",
			  .offset = offsetof(struct sim_opts, capture),
			  .help = "write the last seed's packets, for Wireshark" },
			{ .kind = OPTION_FLAG,
			  .name = "shrink",
			  .offset = offsetof(struct sim_opts, shrink),
			  .help = "look for fewer operations and faults that fail alike" },
			{ .kind = OPTION_NUMBER,
			  .name = "ops",
			  .argument = "N",
			  .offset = offsetof(struct sim_opts, ops),
			  .help = "at most so many operations" },
			{ .kind = OPTION_TEXT,
			  .name = "without",
			  .argument = "KIND,KIND",
			  .offset = offsetof(struct sim_opts, without),
			  .help = "faults that do not happen" },
			{ .kind = OPTION_TEXT,
			  .name = "build",
			  .argument = "FOLDER",
			  .offset = offsetof(struct sim_opts, build),
			  .help = "the build folder, if not the one that this program is in" },
			{ 0 },
		},
	.examples =
		(const struct example[]){
			{ "sennit sim", "which simulators there are" },
			{ "sennit sim traffic --seed 7 --verbose",
			  "what happens in one seed" },
			{ "sennit sim conn --seed 7 --capture conn.pcapng",
			  "its packets" },
			{ 0 },
		},
	.argument_max = 1,
	.opts_size = sizeof(struct sim_opts),
	.run = sim_run,
};
