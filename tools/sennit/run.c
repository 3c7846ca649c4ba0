/* SPDX-License-Identifier: MIT */
/* sennit run: runs a verbs program on soft devices, by preloading a library. */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>
#include <sennit/setting.h>

#include "command.h"
#include "commands.h"
#include "context.h"
#include "place.h"

#define LIBRARY "libsennit-preload.so"

/* The same as env(1). */
#define EXIT_CANNOT_RUN 126
#define EXIT_NOT_FOUND	127

struct run_opts {
	struct context_opts context;
	const char *preload;
	bool print;
};

/* From the folder of this program: in an installation, in a build folder. */
static const char *const places[] = {
	"../" TOOL_LIBDIR "/" LIBRARY,
	"../../preload/" LIBRARY,
};

static int find_library(const struct run_opts *opts, char path[PATH_MAX])
{
	if (opts->preload) {
		if (realpath(opts->preload, path))
			return STATUS_OK;
		return output_failed(NULL, "%s: %s", opts->preload, strerror(errno));
	}
	for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++)
		if (place_find(places[i], path))
			return STATUS_OK;
	return output_failed(
		"install it, or name it with --preload FILE",
		"there is no " LIBRARY
		" beside this program, neither installed nor in its build folder");
}

/*
 * Programs that do not load the library
 */

/* The file that execvp() would run. */
static bool find_program(const char *name, char path[PATH_MAX])
{
	const char *folder = getenv("PATH");
	struct stat found;

	if (strchr(name, '/')) {
		snprintf(path, PATH_MAX, "%s", name);
		return !access(path, F_OK);
	}
	for (folder = folder ? folder : "/bin:/usr/bin";; folder++) {
		size_t length = strcspn(folder, ":");

		snprintf(path, PATH_MAX, "%.*s%s%s", (int)length, folder,
			 length ? "/" : "", name);
		if (*name && !stat(path, &found) && S_ISREG(found.st_mode) &&
		    !access(path, X_OK))
			return true;
		folder += length;
		if (!*folder)
			return false;
	}
}

/* The loader ignores libraries of the other size, with a line for each process. */
static bool is_32_bit(int fd)
{
	unsigned char ident[EI_NIDENT];

	return pread(fd, ident, sizeof(ident), 0) == sizeof(ident) &&
	       !memcmp(ident, ELFMAG, SELFMAG) && ident[EI_CLASS] == ELFCLASS32;
}

/* Is the file a program for this machine without an interpreter that loads libraries?
 * Scripts and unknown formats pass: their interpreter is a program of its own. */
static bool is_static(int fd)
{
	Elf64_Ehdr header;
	Elf64_Phdr part;

	if (pread(fd, &header, sizeof(header), 0) != sizeof(header) ||
	    memcmp(header.e_ident, ELFMAG, SELFMAG) ||
	    header.e_ident[EI_CLASS] != ELFCLASS64 ||
	    header.e_phentsize != sizeof(part))
		return false;
	for (unsigned i = 0; i < header.e_phnum; i++) {
		off_t offset = (off_t)(header.e_phoff + i * sizeof(part));

		if (pread(fd, &part, sizeof(part), offset) != sizeof(part) ||
		    part.p_type == PT_INTERP)
			return false;
	}
	return true;
}

static int check_program(const char *path)
{
	struct stat stat;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	int status = STATUS_OK;

	if (fd < 0) /* may be run but not read */
		return STATUS_OK;
	if (is_static(fd))
		status = output_failed(
			"build it with dynamic linking",
			"%s is linked statically, so that no library can be loaded "
			"before it",
			path);
	else if (is_32_bit(fd))
		status = output_failed("build it for 64 bits",
				       "%s is a 32-bit program, and %s is not", path,
				       LIBRARY);
	else if ((!fstat(fd, &stat) && stat.st_mode & (S_ISUID | S_ISGID)) ||
		 fgetxattr(fd, "security.capability", NULL, 0) > 0)
		status = output_failed(
			"run a copy of it, which does not have that",
			"%s is set-user-ID, set-group-ID, or has "
			"capabilities, so that the system ignores LD_PRELOAD",
			path);
	close(fd);
	return status;
}

/*
 * The environment
 */

static int set_environment(const struct run_opts *opts, const char *library)
{
	static const char *const soft[] = { NULL, "auto", "never", "only" };
	const struct {
		const char *name, *value;
	} settings[] = {
		{ "SENNIT_DEVICES", opts->context.devices },
		{ "SENNIT_SOFT", soft[opts->context.soft] },
		{ "SENNIT_SOFT_ADDRESSES", opts->context.soft_addresses },
		{ "SENNIT_GID", opts->context.gid },
	};
	const char *before = getenv("LD_PRELOAD");
	char *list;
	int ret;

	for (size_t i = 0; i < sizeof(settings) / sizeof(*settings); i++)
		if (settings[i].value && setenv(settings[i].name, settings[i].value, 1))
			return -1;
	if (asprintf(&list, "%s%s%s", library, before && *before ? ":" : "",
		     before ? before : "") < 0)
		return -1;
	ret = setenv("LD_PRELOAD", list, 1);
	free(list);
	return ret;
}

static int print_plan(const char *library, const char *program)
{
	json_t *object;

	output_text("LD_PRELOAD=%s\n", getenv("LD_PRELOAD"));
	if (!output.json)
		return STATUS_OK;
	object = output_object();
	json_object_set_new(object, "preload", output_string(library));
	json_object_set_new(object, "program", output_string(program));
	json_object_set_new(object, "LD_PRELOAD", output_string(getenv("LD_PRELOAD")));
	output_json(object);
	return STATUS_OK;
}

static int run_run(const void *opts_in, int count, char **argument)
{
	const struct run_opts *opts = opts_in;
	char library[PATH_MAX], program[PATH_MAX];
	int status;

	(void)count;
	status = find_library(opts, library);
	if (status)
		return status;
	if (strpbrk(library, " :"))
		return output_failed(
			"put it elsewhere",
			"%s: LD_PRELOAD cannot name a path with a blank or colon",
			library);
	if (!find_program(argument[0], program))
		return output_failed_as(EXIT_NOT_FOUND, NULL, "\"%s\": no such program",
					argument[0]);
	status = check_program(program);
	if (status)
		return status;
	if (set_environment(opts, library))
		return output_failed(NULL, "%s", strerror(errno));
	if (opts->print)
		return print_plan(library, program);
	execv(program, argument);
	return output_failed_as(EXIT_CANNOT_RUN, NULL, "%s: %s", program,
				strerror(errno));
}

const struct command run_command = {
	.name = "run",
	.summary =
		"run a verbs or rdma_cm program with soft devices beside the kernel's",
	.arguments = "[--] PROGRAM [ARGUMENT]...",
	.description =
		"Loads " LIBRARY
		" before the program, which then sees soft devices among those that "
		"libibverbs and librdmacm list, and can use them as any other. The "
		"program needs no change and knows nothing of it. Its exit status is "
		"that of the program; 126 if it could not be run, 127 if it was not "
		"found.\n\n"
		"What it cannot reach: programs that are linked statically; programs that "
		"are set-user-ID or set-group-ID or have capabilities; 32-bit programs; "
		"programs that go to a driver directly, by /dev/infiniband or by calls of "
		"one vendor such as mlx5dv. The first three are refused. The library itself, "
		"inside of such a program, is not affected.",
	.options =
		(const struct option_entry[]){
			{ .kind = OPTION_TEXT,
			  .name = "preload",
			  .argument = "FILE",
			  .offset = offsetof(struct run_opts, preload),
			  .help = "the library, if it is not the one that was installed with this "
				  "program or built beside it" },
			{ .kind = OPTION_FLAG,
			  .name = "print",
			  .offset = offsetof(struct run_opts, print),
			  .help = "say what LD_PRELOAD would be, and run nothing" },
			{ .kind = OPTION_TABLE,
			  .table = context_options,
			  .offset = offsetof(struct run_opts, context) },
			{ 0 },
		},
	.examples =
		(const struct example[]){
			{ "sennit run ibv_devinfo", "are they there?" },
			{ "sennit run -- ib_write_bw -d soft0",
			  "perftest on a host without RDMA" },
			{ "export $(sennit run --print -- true)",
			  "for all that this shell starts" },
			{ 0 },
		},
	.argument_min = 1,
	.argument_max = -1,
	.stops_at_argument = true,
	.opts_size = sizeof(struct run_opts),
	.run = run_run,
};
