/* SPDX-License-Identifier: MIT */
/*
 * The end that gets the files. Each is written under a name of its own (copy_path.h), and
 * takes the name that it is to have only when it is there as a whole, checked and on disk:
 * whatever happens before, the file that had this name is left as it was. What there is of
 * it stays, for the next time, unless it is known to be of no use.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "copy.h"
#include "copy_path.h"
#include "output.h"

#define HASHED_MAX COPY_DATA_MAX

enum {
	IDLE,
	HASHING, /* what is there from before */
	WAITING, /* for where to start */
	DATA,
	DRAINING, /* it is of no use: what is still under way is dropped */
};

void copy_receiver_begin(struct copy_receiver *receiver, struct copy_link *link,
			 struct copy_report *report, uint32_t digest_kind, int root)
{
	receiver->link = link;
	receiver->report = report;
	receiver->digest_kind = digest_kind;
	receiver->root = root;
	receiver->fd = receiver->parent = -1;
}

static void close_file(struct copy_receiver *receiver)
{
	if (receiver->fd >= 0)
		close(receiver->fd);
	if (receiver->parent >= 0)
		close(receiver->parent);
	receiver->fd = receiver->parent = -1;
}

static void drop_part(struct copy_receiver *receiver)
{
	if (!receiver->to_stdout && !receiver->in_place && receiver->parent >= 0)
		unlinkat(receiver->parent, receiver->part, 0);
}

void copy_receiver_end(struct copy_receiver *receiver)
{
	char size[OUTPUT_QUANTITY], text[COPY_TEXT_MAX];

	if (receiver->fd >= 0 && !receiver->to_stdout && !receiver->in_place) {
		if (receiver->at) {
			fsync(receiver->fd);
			snprintf(
				text, sizeof(text),
				"%.800s: %s of it are kept, and copying it again goes on "
				"from there",
				receiver->file.text, output_bytes(size, receiver->at));
			if (receiver->report->problem)
				receiver->report->problem(receiver->report->arg, text);
		} else {
			drop_part(receiver);
		}
	}
	close_file(receiver);
	copy_digest_end(&receiver->digest);
	if (receiver->root >= 0)
		close(receiver->root);
	receiver->root = -1;
}

/*
 * Telling the sender
 */

static int succeed(struct copy_receiver *receiver)
{
	struct copy_frame frame = { .type = COPY_RESULT };

	copy_link_put(receiver->link, &frame);
	close_file(receiver);
	receiver->state = IDLE;
	return 1;
}

/* The file, or folder, cannot be had, and the rest can. */
__attribute__((format(printf, 3, 4))) static int refuse(struct copy_receiver *receiver,
							int error, const char *format,
							...)
{
	struct copy_frame frame = { .type = COPY_RESULT, .error = (uint32_t)error };
	bool data_comes = receiver->state == DATA;
	va_list args;
	int length;

	length = snprintf(frame.text, COPY_TEXT_MAX, "%.800s", receiver->file.text);
	va_start(args, format);
	vsnprintf(frame.text + length, (size_t)(COPY_TEXT_MAX - length), format, args);
	va_end(args);
	receiver->report->problems++;
	receiver->report->damaged += error == EBADMSG;
	if (receiver->report->problem)
		receiver->report->problem(receiver->report->arg, frame.text);
	copy_link_put(receiver->link, &frame);
	close_file(receiver);
	receiver->state = data_comes ? DRAINING : IDLE;
	return 1;
}

/* What went wrong may be mended: then what there is can be used. */
static int refuse_and_keep(struct copy_receiver *receiver, int error, const char *what)
{
	char size[OUTPUT_QUANTITY];

	if (receiver->to_stdout || receiver->in_place)
		return refuse(receiver, error, ": %s: %s", what, strerror(error));
	if (!receiver->at) {
		drop_part(receiver);
		return refuse(receiver, error, ": %s: %s; nothing of it is kept", what,
			      strerror(error));
	}
	return refuse(
		receiver, error,
		": %s: %s; %s of it are kept, and copying it again goes on from there",
		what, strerror(error), output_bytes(size, receiver->at));
}

/*
 * Where things go
 */

/* The path here for what the peer calls it; false if it may not say that. */
static bool path_here(const struct copy_receiver *receiver, const char *said,
		      char path[COPY_PATH_MAX])
{
	size_t first = strcspn(said, "/");

	if (!*said || copy_path_check(said))
		return false;
	if (*receiver->top &&
	    (strlen(receiver->top) != first || memcmp(receiver->top, said, first)))
		return false;
	if (!*receiver->name)
		return snprintf(path, COPY_PATH_MAX, "%s", said) < COPY_PATH_MAX;
	return snprintf(path, COPY_PATH_MAX, "%s%s", receiver->name, said + first) <
	       COPY_PATH_MAX;
}

static int open_parent(struct copy_receiver *receiver, char path[COPY_PATH_MAX])
{
	const char *name;
	int parent;

	if (!path_here(receiver, receiver->file.text, path))
		return refuse(receiver, EINVAL, ": no such path may be written to");
	parent = copy_path_parent(receiver->root, path, &name);
	if (parent < 0)
		return refuse(receiver, -parent, ": the folder that it goes to: %s",
			      strerror(-parent));
	receiver->parent = parent;
	snprintf(receiver->target, sizeof(receiver->target), "%.*s", NAME_MAX, name);
	copy_path_part(receiver->target, receiver->part);
	return 0;
}

static int on_folder(struct copy_receiver *receiver, const struct copy_frame *frame)
{
	char path[COPY_PATH_MAX];
	struct stat stat;
	int ret;

	receiver->file = *frame;
	if (receiver->to_stdout)
		return refuse(receiver, EISDIR,
			      ": a folder cannot go to standard output");
	ret = open_parent(receiver, path);
	if (ret)
		return ret;
	if (!mkdirat(receiver->parent, receiver->target, frame->mode | 0700)) {
		receiver->report->folders++;
		return succeed(receiver);
	}
	if (errno == EEXIST &&
	    !fstatat(receiver->parent, receiver->target, &stat, AT_SYMLINK_NOFOLLOW) &&
	    S_ISDIR(stat.st_mode))
		return succeed(receiver);
	return refuse(receiver, errno, ": the folder cannot be made: %s",
		      strerror(errno));
}

/*
 * A file begins
 */

/* A file of ours with one name, which nobody else is writing to. */
static int open_part(struct copy_receiver *receiver)
{
	struct stat stat;

	if (!fstatat(receiver->parent, receiver->target, &stat, AT_SYMLINK_NOFOLLOW) &&
	    !S_ISREG(stat.st_mode))
		return refuse(receiver, EEXIST,
			      ": there is %s of this name, which is left alone",
			      S_ISDIR(stat.st_mode)   ? "a folder"
			      : S_ISLNK(stat.st_mode) ? "a symbolic link"
						      : "a device, a pipe or the like");
	receiver->fd =
		openat(receiver->parent, receiver->part,
		       O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
	if (receiver->fd < 0)
		return refuse(receiver, errno, ": it cannot be written: %s",
			      strerror(errno));
	if (fstat(receiver->fd, &stat))
		return refuse(receiver, errno, ": %s", strerror(errno));
	if (!S_ISREG(stat.st_mode) || stat.st_nlink != 1 || stat.st_uid != geteuid())
		return refuse(receiver, EEXIST,
			      ": %s is in the way, and not ours: remove it",
			      receiver->part);
	if (flock(receiver->fd, LOCK_EX | LOCK_NB))
		return refuse(receiver, EBUSY,
			      ": somebody else is copying to it just now");
	receiver->have = (uint64_t)stat.st_size;
	return 0;
}

/* Copying a folder again finds most of its files as they are to be: one of the right size,
 * with nothing left of an earlier try beside it, is compared before it is written anew. */
static bool open_whole(struct copy_receiver *receiver)
{
	struct stat stat;
	int fd;

	if (!fstatat(receiver->parent, receiver->part, &stat, AT_SYMLINK_NOFOLLOW))
		return false;
	fd = openat(receiver->parent, receiver->target,
		    O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return false;
	if (fstat(fd, &stat) || !S_ISREG(stat.st_mode) ||
	    (uint64_t)stat.st_size != receiver->file.size || !stat.st_size) {
		close(fd);
		return false;
	}
	receiver->fd = fd;
	receiver->have = (uint64_t)stat.st_size;
	receiver->in_place = true;
	return true;
}

static int tell_have(struct copy_receiver *receiver)
{
	struct copy_frame frame = { .type = COPY_HAVE, .offset = receiver->at };

	if (copy_digest_value(&receiver->digest, frame.digest))
		return copy_link_fail(receiver->link, ENOMEM, "out of memory");
	copy_link_put(receiver->link, &frame);
	receiver->have = receiver->at;
	receiver->state = WAITING;
	return 1;
}

static int on_file(struct copy_receiver *receiver, const struct copy_frame *frame)
{
	char path[COPY_PATH_MAX];
	int ret;

	receiver->file = *frame;
	receiver->at = receiver->have = receiver->resumed = 0;
	receiver->in_place = false;
	memcpy(receiver->report->path, frame->text, sizeof(frame->text));
	receiver->report->size = frame->size;
	receiver->report->at = 0;
	if (copy_digest_begin(&receiver->digest, receiver->digest_kind))
		return copy_link_fail(receiver->link, ENOMEM, "out of memory");
	if (receiver->to_stdout) {
		receiver->fd = dup(STDOUT_FILENO);
		if (receiver->fd < 0)
			return refuse(receiver, errno, ": standard output: %s",
				      strerror(errno));
		return tell_have(receiver);
	}
	ret = open_parent(receiver, path);
	if (!ret && !open_whole(receiver))
		ret = open_part(receiver);
	if (ret)
		return ret;
	/* More than there is to come is of something else. */
	if (frame->size == COPY_UNKNOWN || receiver->have > frame->size)
		receiver->have = 0;
	if (!receiver->have)
		return tell_have(receiver);
	receiver->state = HASHING;
	return 1;
}

static int hash_some(struct copy_receiver *receiver)
{
	uint8_t buffer[HASHED_MAX];
	uint64_t left = receiver->have - receiver->at;
	ssize_t length =
		pread(receiver->fd, buffer, left < HASHED_MAX ? left : HASHED_MAX,
		      (off_t)receiver->at);

	if (length < 0)
		return refuse(receiver, errno, ": what was there from before: %s",
			      strerror(errno));
	copy_digest_add(&receiver->digest, buffer, (size_t)length);
	receiver->at += (uint64_t)length;
	return length && receiver->at < receiver->have ? 1 : tell_have(receiver);
}

static int on_start(struct copy_receiver *receiver, const struct copy_frame *frame)
{
	if (receiver->state != WAITING ||
	    (frame->offset && frame->offset != receiver->have))
		return copy_link_fail(receiver->link, EPROTO,
				      "the peer starts somewhere else");
	receiver->state = DATA;
	receiver->at = receiver->resumed = frame->offset;
	receiver->report->at = frame->offset;
	if (!frame->offset && receiver->in_place) {
		close(receiver->fd);
		receiver->fd = -1;
		receiver->in_place = false;
		if (open_part(receiver))
			return 1;
	}
	if (receiver->in_place)
		return 1;
	if (!frame->offset &&
	    copy_digest_begin(&receiver->digest, receiver->digest_kind))
		return copy_link_fail(receiver->link, ENOMEM, "out of memory");
	if (!receiver->to_stdout && ftruncate(receiver->fd, (off_t)frame->offset))
		return refuse(receiver, errno, ": it cannot be written: %s",
			      strerror(errno));
	return 1;
}

/*
 * Its bytes
 */

static ssize_t write_some(struct copy_receiver *receiver, const struct iovec *iov)
{
	ssize_t length;

	do {
		if (receiver->to_stdout)
			length = write(receiver->fd, iov->iov_base, iov->iov_len);
		else
			length = pwrite(receiver->fd, iov->iov_base, iov->iov_len,
					(off_t)receiver->at);
	} while (length < 0 && errno == EINTR);
	return length;
}

static int take_bytes(struct copy_receiver *receiver)
{
	struct iovec iov[2];
	ssize_t length = copy_link_bytes(receiver->link, iov);

	if (length <= 0)
		return (int)length;
	if (receiver->state == DRAINING) {
		copy_link_consume(receiver->link, (size_t)length);
		return 1;
	}
	if (receiver->file.size != COPY_UNKNOWN &&
	    receiver->at + (uint64_t)length > receiver->file.size)
		return copy_link_fail(receiver->link, EPROTO,
				      "the peer sends more than there is");
	length = write_some(receiver, &iov[0]);
	if (length < 0)
		return refuse_and_keep(receiver, errno, "writing it failed");
	copy_digest_add(&receiver->digest, iov[0].iov_base, (size_t)length);
	copy_link_consume(receiver->link, (size_t)length);
	receiver->at += (uint64_t)length;
	receiver->report->at = receiver->at;
	receiver->report->moved += (uint64_t)length;
	return 1;
}

/*
 * Its end
 */

static mode_t mask_now(void)
{
	mode_t mask = umask(077);

	umask(mask);
	return mask;
}

/* Times before 1970 are negative. */
static struct timespec time_of(uint64_t ns)
{
	int64_t second = (int64_t)ns / 1000000000, rest = (int64_t)ns % 1000000000;

	if (rest < 0) {
		rest += 1000000000;
		second--;
	}
	return (struct timespec){ .tv_sec = second, .tv_nsec = rest };
}

/* On disk under its name, or not at all. */
static int put_in_place(struct copy_receiver *receiver)
{
	struct timespec times[2] = { { .tv_nsec = UTIME_OMIT },
				     time_of(receiver->file.mtime_ns) };
	bool failed = fchmod(receiver->fd, receiver->file.mode & ~mask_now()) ||
		      (receiver->keep_times && futimens(receiver->fd, times));

	/* The file itself may be somebody else's: its bytes are right all the same. */
	if (receiver->in_place)
		return 0;
	if (failed)
		return -errno;
	if (fsync(receiver->fd))
		return -errno;
	if (renameat(receiver->parent, receiver->part, receiver->parent,
		     receiver->target))
		return -errno;
	return fsync(receiver->parent) && errno != EINVAL ? -errno : 0;
}

static int judge(struct copy_receiver *receiver, const struct copy_frame *frame)
{
	uint8_t digest[COPY_DIGEST];
	int ret;

	receiver->state = IDLE; /* nothing more comes of it */
	if (copy_digest_value(&receiver->digest, digest))
		return copy_link_fail(receiver->link, ENOMEM, "out of memory");
	if (memcmp(digest, frame->digest, COPY_DIGEST)) {
		drop_part(receiver);
		return refuse(
			receiver, EBADMSG,
			": it did not arrive as it was sent, and was dropped; copy it "
			"again");
	}
	if (!receiver->to_stdout) {
		ret = put_in_place(receiver);
		if (ret)
			return refuse_and_keep(receiver, -ret,
					       "it could not be put in place");
	}
	receiver->report->files++;
	receiver->report->bytes += receiver->at;
	receiver->report->resumed += receiver->resumed;
	return succeed(receiver);
}

static int on_done(struct copy_receiver *receiver, const struct copy_frame *frame)
{
	if (receiver->state == DRAINING) {
		receiver->state = IDLE;
		return 1;
	}
	if (receiver->state != DATA)
		return copy_link_fail(receiver->link, EPROTO,
				      "the peer ends what was not begun");
	if (frame->done == COPY_WHOLE && (receiver->file.size == COPY_UNKNOWN ||
					  receiver->at == receiver->file.size))
		return judge(receiver, frame);
	receiver->state = IDLE;
	if (frame->done == COPY_CHANGED) {
		drop_part(receiver);
		return refuse(
			receiver, ESTALE,
			": it changed while it was being copied, and was dropped; copy it "
			"again when it is at rest");
	}
	if (frame->done == COPY_UNREADABLE)
		return refuse_and_keep(receiver, EIO, "the sender cannot read it");
	return copy_link_fail(receiver->link, EPROTO, "the peer ends too early");
}

/*
 * What the peer says
 */

static int on_end(struct copy_receiver *receiver)
{
	struct copy_frame frame = { .type = COPY_END };

	copy_link_put(receiver->link, &frame);
	receiver->over = true;
	return 1;
}

static int on_problem(struct copy_receiver *receiver, const struct copy_frame *frame)
{
	receiver->report->problems++;
	if (receiver->report->problem)
		receiver->report->problem(receiver->report->arg, frame->text);
	return 1;
}

static int listen_to(struct copy_receiver *receiver)
{
	struct copy_frame frame;
	int ret = copy_link_next(receiver->link, &frame);

	if (ret <= 0)
		return ret;
	if (frame.type == COPY_START)
		return on_start(receiver, &frame);
	if (frame.type == COPY_DONE)
		return on_done(receiver, &frame);
	if (frame.type == COPY_DATA &&
	    (receiver->state == DATA || receiver->state == DRAINING))
		return 1;
	if (receiver->state == IDLE) {
		if (frame.type == COPY_FILE)
			return on_file(receiver, &frame);
		if (frame.type == COPY_DIRECTORY)
			return on_folder(receiver, &frame);
		if (frame.type == COPY_PROBLEM)
			return on_problem(receiver, &frame);
		if (frame.type == COPY_END)
			return on_end(receiver);
	}
	return copy_link_fail(receiver->link, EPROTO,
			      "the peer says something out of turn");
}

int copy_receiver_step(struct copy_receiver *receiver)
{
	int did = 0, pushed;

	if (copy_link_has_room(receiver->link, COPY_CONTROL_MAX)) {
		if (receiver->state == HASHING)
			did = hash_some(receiver);
		else if (receiver->link->data_left)
			did = take_bytes(receiver);
		else
			did = listen_to(receiver);
	}
	if (did < 0)
		return did;
	pushed = copy_link_push(receiver->link);
	return pushed < 0 ? pushed : did || pushed;
}
