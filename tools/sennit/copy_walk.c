/* SPDX-License-Identifier: MIT */
#include "copy_walk.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "copy_path.h"

void copy_walk_begin(struct copy_walk *walk, const struct copy_source *source,
		     size_t count)
{
	memset(walk, 0, sizeof(*walk));
	walk->source = source;
	walk->source_count = count;
}

void copy_walk_end(struct copy_walk *walk)
{
	while (walk->depth)
		closedir(walk->level[--walk->depth].folder);
}

__attribute__((format(printf, 3, 4))) static enum copy_found report_problem(
	struct copy_entry *entry, int error, const char *format, ...)
{
	va_list args;

	entry->error = error;
	va_start(args, format);
	vsnprintf(entry->text, sizeof(entry->text), format, args);
	va_end(args);
	return COPY_FOUND_PROBLEM;
}

static const char *file_kind_text(mode_t mode)
{
	return S_ISLNK(mode)	? "a symbolic link"
	       : S_ISFIFO(mode) ? "a pipe"
	       : S_ISSOCK(mode) ? "a socket"
				: "a device";
}

/* Opens it only if it is a file or a folder: opening anything else has side effects. */
static enum copy_found look_at(struct copy_entry *entry, int folder, const char *name,
			       const char *shown, bool follow)
{
	int flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | (follow ? 0 : O_NOFOLLOW);

	if (fstatat(folder, name, &entry->stat, follow ? 0 : AT_SYMLINK_NOFOLLOW))
		return report_problem(entry, errno, "%.900s: %s", shown,
				      strerror(errno));
	if (!S_ISREG(entry->stat.st_mode) && !S_ISDIR(entry->stat.st_mode))
		return report_problem(entry, EINVAL, "%.900s is %s and was skipped",
				      shown, file_kind_text(entry->stat.st_mode));
	entry->fd = openat(folder, name, flags);
	if (entry->fd < 0)
		return report_problem(entry, errno, "%.900s: %s", shown,
				      strerror(errno));
	if (fstat(entry->fd, &entry->stat) ||
	    (!S_ISREG(entry->stat.st_mode) && !S_ISDIR(entry->stat.st_mode))) {
		close(entry->fd);
		return report_problem(entry, EINVAL,
				      "%.900s was replaced meanwhile and was skipped",
				      shown);
	}
	return S_ISDIR(entry->stat.st_mode) ? COPY_FOUND_FOLDER : COPY_FOUND_FILE;
}

/* Goes into a folder that is open at entry->fd. */
static enum copy_found enter_folder(struct copy_walk *walk, struct copy_entry *entry)
{
	DIR *folder;

	if (walk->depth == COPY_DEPTH_MAX) {
		close(entry->fd);
		return report_problem(entry, ELOOP,
				      "%.900s is more than %d folders deep",
				      entry->path, COPY_DEPTH_MAX);
	}
	folder = fdopendir(entry->fd);
	if (!folder) {
		close(entry->fd);
		return report_problem(entry, errno, "%.900s: %s", entry->path,
				      strerror(errno));
	}
	entry->fd = -1;
	walk->level[walk->depth].folder = folder;
	walk->level[walk->depth].path_length = strlen(entry->path);
	walk->depth++;
	memcpy(walk->path, entry->path, sizeof(walk->path));
	return COPY_FOUND_FOLDER;
}

static enum copy_found from_source(struct copy_walk *walk, struct copy_entry *entry)
{
	const struct copy_source *source = &walk->source[walk->source_next++];
	enum copy_found found;

	snprintf(entry->path, sizeof(entry->path), "%s", source->top);
	if (source->pipe) {
		entry->fd = dup(STDIN_FILENO);
		memset(&entry->stat, 0, sizeof(entry->stat));
		entry->stat.st_mode = S_IFIFO | 0666;
		return entry->fd < 0
			       ? report_problem(entry, errno, "standard input: %s",
						strerror(errno))
			       : COPY_FOUND_FILE;
	}
	found = look_at(entry, source->folder, source->name, source->name,
			source->follow);
	return found == COPY_FOUND_FOLDER ? enter_folder(walk, entry) : found;
}

static bool is_here(const char *name)
{
	return !strcmp(name, ".") || !strcmp(name, "..");
}

enum copy_found copy_walk_next(struct copy_walk *walk, struct copy_entry *entry)
{
	entry->fd = -1;
	while (walk->depth) {
		DIR *folder = walk->level[walk->depth - 1].folder;
		size_t base = walk->level[walk->depth - 1].path_length;
		struct dirent *found;
		enum copy_found what;

		errno = 0;
		found = readdir(folder);
		if (!found) {
			int error = errno;

			closedir(folder);
			walk->depth--;
			walk->path[base] = '\0';
			if (error)
				return report_problem(entry, error, "%.900s: %s",
						      walk->path, strerror(error));
			continue;
		}
		if (is_here(found->d_name))
			continue;
		walk->path[base] = '\0';
		if (snprintf(entry->path, sizeof(entry->path), "%s%s%s", walk->path,
			     base ? "/" : "",
			     found->d_name) >= (int)sizeof(entry->path))
			return report_problem(entry, ENAMETOOLONG,
					      "%.800s/...: the path is too long",
					      walk->path);
		/* Receivers refuse this name. */
		if (copy_path_is_part(found->d_name))
			return report_problem(
				entry, EINVAL,
				"%.900s is left over from an interrupted copy and was skipped",
				entry->path);
		what = look_at(entry, dirfd(folder), found->d_name, entry->path, false);
		return what == COPY_FOUND_FOLDER ? enter_folder(walk, entry) : what;
	}
	if (walk->source_next < walk->source_count)
		return from_source(walk, entry);
	return COPY_FOUND_END;
}
