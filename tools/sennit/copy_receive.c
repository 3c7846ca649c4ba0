/* SPDX-License-Identifier: MIT */
/*
 * The receiving end. Each file is written under a temporary name (copy_path.h), and
 * takes its final name only once it is complete, checked and on disk (copy_group.h):
 * whatever happens before, the file that had this name is left unchanged. An incomplete
 * file is kept for the next time, unless it is known to be of no use.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "copy.h"
#include "copy_part.h"
#include "copy_path.h"
#include "output.h"

#define HASHED_MAX COPY_DATA_MAX

/* States of a file or folder. */
enum {
	FREE,
	HASHED,	 /* what exists from before is or will be hashed */
	WAITING, /* for START */
	WRITTEN,
	WHOLE, /* and in the group */
};

/* States of the receiver. */
enum {
	IDLE,
	LOCKED,	  /* the current file, by another descriptor; it is tried again */
	HASHING,  /* the current file */
	DATA,	  /* of the current file */
	DRAINING, /* the current file is of no use: data still in flight is dropped */
};

void copy_receiver_begin(struct copy_receiver *receiver, struct copy_link *link,
			 struct copy_report *report, uint32_t digest_kind, int root)
{
	receiver->link = link;
	receiver->report = report;
	receiver->digest_kind = digest_kind;
	receiver->root = root;
	receiver->gathered = &receiver->group[0];
}

/* The item is judged, or given up. */
static void release_item(struct copy_receiver *receiver, struct copy_incoming *item)
{
	if (item->state == WAITING)
		receiver->waiting--;
	if (receiver->current == item)
		receiver->current = NULL;
	copy_part_close(item);
	copy_folder_release(item->folder);
	copy_digest_end(&item->digest);
	free(item->path);
	*item = (struct copy_incoming){ .state = FREE };
}

static void drop_part(const struct copy_receiver *receiver, struct copy_incoming *item)
{
	if (!receiver->to_stdout && !item->in_place && item->folder && item->fd >= 0)
		unlinkat(item->folder->fd, item->part, 0);
}

/*
 * Telling the sender
 */

static int accept_item(struct copy_receiver *receiver, struct copy_incoming *item)
{
	struct copy_frame frame = { .type = COPY_JUDGED, .entry = item->entry };

	copy_link_put(receiver->link, &frame);
	release_item(receiver, item);
	return 1;
}

/* This file or folder fails, but the rest can go on. */
__attribute__((format(printf, 4, 5))) static int refuse_item(
	struct copy_receiver *receiver, struct copy_incoming *item, int error,
	const char *format, ...)
{
	struct copy_frame frame = { .type = COPY_JUDGED,
				    .entry = item->entry,
				    .error = (uint32_t)error };
	va_list args;
	int length;

	length = snprintf(frame.text, COPY_TEXT_MAX, "%.800s", item->path);
	va_start(args, format);
	vsnprintf(frame.text + length, (size_t)(COPY_TEXT_MAX - length), format, args);
	va_end(args);
	receiver->report->problems++;
	receiver->report->damaged += error == EBADMSG;
	if (receiver->report->problem)
		receiver->report->problem(receiver->report->arg, frame.text);
	copy_link_put(receiver->link, &frame);
	if (receiver->current == item)
		receiver->state = item->state == WRITTEN ? DRAINING : IDLE;
	release_item(receiver, item);
	return 1;
}

/* The cause may be fixed: then the bytes received so far can be used. */
static int refuse_and_keep(struct copy_receiver *receiver, struct copy_incoming *item,
			   int error, const char *what)
{
	char size[OUTPUT_QUANTITY];

	if (receiver->to_stdout || item->in_place || item->fd < 0)
		return refuse_item(receiver, item, error, ": %s: %s", what,
				   strerror(error));
	if (!item->at) {
		drop_part(receiver, item);
		return refuse_item(receiver, item, error,
				   ": %s: %s; nothing of it was kept", what,
				   strerror(error));
	}
	return refuse_item(receiver, item, error,
			   ": %s: %s; %s of it were kept; copy it again to resume",
			   what, strerror(error), output_bytes(size, item->at));
}

/*
 * The group
 */

static int tell_placed(struct copy_receiver *receiver, struct copy_incoming *item)
{
	if (item->error)
		return refuse_and_keep(receiver, item, item->error,
				       "cannot rename it into place");
	if (*item->part) {
		receiver->report->files++;
		receiver->report->bytes += item->at;
		receiver->report->resumed += item->resumed;
	} else {
		receiver->report->folders++;
	}
	return accept_item(receiver, item);
}

/* Puts the gathered group in place, unless the other one still is. 1: it has begun. */
static int place_group(struct copy_receiver *receiver)
{
	struct copy_group *other = receiver->gathered == &receiver->group[0]
					   ? &receiver->group[1]
					   : &receiver->group[0];

	if (receiver->placing.group)
		return 0;
	copy_disk_place(&receiver->placing, receiver->gathered);
	receiver->gathered = other;
	return 1;
}

/* 1: the sender was told of one item; 0: the disk is not done yet. */
static int tell_one_placed(struct copy_receiver *receiver)
{
	struct copy_incoming *item;

	if (!copy_disk_is_done(&receiver->placing))
		return 0;
	item = copy_group_take(receiver->placing.group);
	if (item)
		return tell_placed(receiver, item);
	receiver->placing.group = NULL;
	return 1;
}

/*
 * The end, whatever came
 */

static void keep_part(const struct copy_receiver *receiver, struct copy_incoming *item)
{
	char size[OUTPUT_QUANTITY], text[COPY_TEXT_MAX];

	snprintf(text, sizeof(text),
		 "%.800s: %s of it were kept; copy it again to resume", item->path,
		 output_bytes(size, item->at));
	if (receiver->report->problem)
		receiver->report->problem(receiver->report->arg, text);
}

void copy_receiver_end(struct copy_receiver *receiver)
{
	struct copy_incoming *current = receiver->current;

	/* Complete files are put in place, though the sender may not learn of it. */
	if (receiver->placing.group)
		copy_disk_wait(&receiver->placing);
	if (receiver->gathered->count)
		copy_group_place(receiver->gathered);
	for (int i = 0; i < 2; i++)
		while (copy_group_take(&receiver->group[i]))
			;
	receiver->placing.group = NULL;
	if (current && current->state >= WRITTEN && current->fd >= 0 &&
	    !receiver->to_stdout && !current->in_place) {
		if (current->at)
			keep_part(receiver, current);
		else
			drop_part(receiver, current);
	}
	for (size_t i = 0; i < COPY_WINDOW; i++)
		if (receiver->window[i].state != FREE)
			release_item(receiver, &receiver->window[i]);
	copy_folder_release(receiver->folder);
	receiver->folder = NULL;
	if (receiver->root >= 0)
		close(receiver->root);
	receiver->root = -1;
}

/*
 * Where things go
 */

/* The local path for the peer's path; false if the peer may not use that path. */
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

/* 0; 1: it was refused. */
static int find_folder(struct copy_receiver *receiver, struct copy_incoming *item)
{
	char path[COPY_PATH_MAX];
	const char *slash;
	int ret;

	if (!path_here(receiver, item->path, path))
		return refuse_item(receiver, item, EINVAL, ": not a valid path here");
	ret = copy_folder_of(receiver->root, path, receiver->folder, &item->folder);
	if (ret)
		return refuse_item(receiver, item, -ret, ": cannot open its folder: %s",
				   strerror(-ret));
	if (item->folder != receiver->folder) {
		copy_folder_release(receiver->folder);
		receiver->folder = item->folder;
		receiver->folder->user_count++;
	}
	slash = strrchr(path, '/');
	snprintf(item->target, sizeof(item->target), "%.*s", NAME_MAX,
		 slash ? slash + 1 : path);
	return 0;
}

/* NULL: the peer broke the protocol, or there is no memory. */
static struct copy_incoming *new_item(struct copy_receiver *receiver,
				      const struct copy_frame *frame)
{
	struct copy_incoming *item = &receiver->window[frame->entry % COPY_WINDOW];

	if (frame->entry != receiver->next || item->state != FREE) {
		copy_link_fail(
			receiver->link, EPROTO,
			"the peer proposed a file out of order, or too many files");
		return NULL;
	}
	*item = (struct copy_incoming){ .entry = frame->entry,
					.fd = -1,
					.path = strdup(frame->text),
					.mode = frame->mode,
					.size = frame->size,
					.mtime_ns = frame->mtime_ns };
	if (!item->path) {
		copy_link_fail(receiver->link, ENOMEM, "out of memory");
		return NULL;
	}
	receiver->next++;
	item->state = HASHED;
	return item;
}

static int on_folder(struct copy_receiver *receiver, const struct copy_frame *frame)
{
	struct copy_incoming *item = new_item(receiver, frame);
	struct stat stat;
	int ret;

	if (!item)
		return -receiver->link->error;
	if (receiver->to_stdout)
		return refuse_item(receiver, item, EISDIR,
				   ": a folder cannot go to standard output");
	ret = find_folder(receiver, item);
	if (ret)
		return ret;
	if (!mkdirat(item->folder->fd, item->target, frame->mode | 0700)) {
		item->state = WHOLE;
		copy_group_add(receiver->gathered, item);
		return 1;
	}
	if (errno == EEXIST &&
	    !fstatat(item->folder->fd, item->target, &stat, AT_SYMLINK_NOFOLLOW) &&
	    S_ISDIR(stat.st_mode))
		return accept_item(receiver, item);
	return refuse_item(receiver, item, errno, ": cannot create the folder: %s",
			   strerror(errno));
}

/*
 * A file begins
 */

/* 0; 1: it is tried again later, or was refused. */
static int lock_part(struct copy_receiver *receiver, struct copy_incoming *item,
		     const struct stat *stat)
{
	bool is_locked = flock(item->fd, LOCK_EX | LOCK_NB) != 0;

	if (!is_locked && copy_part_is_named(item, stat))
		return 0;
	if (is_locked &&
	    (!receiver->locked || !receiver->locked(receiver->locked_arg, stat)))
		return refuse_item(receiver, item, EBUSY,
				   ": another client is copying to it");
	copy_part_close(item);
	receiver->current = item;
	receiver->state = LOCKED;
	return 1;
}

/* Opens a file of this user with one name, which no other client is writing. 0; 1: it
 * was refused, or is tried again later. */
static int open_part_file(struct copy_receiver *receiver, struct copy_incoming *item)
{
	struct stat stat;

	if (!fstatat(item->folder->fd, item->target, &stat, AT_SYMLINK_NOFOLLOW) &&
	    !S_ISREG(stat.st_mode))
		return refuse_item(receiver, item, EEXIST,
				   ": %s of this name exists and was not replaced",
				   S_ISDIR(stat.st_mode) ? "a folder"
				   : S_ISLNK(stat.st_mode)
					   ? "a symbolic link"
					   : "a device, a pipe or the like");
	item->fd = openat(item->folder->fd, item->part,
			  O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
	if (item->fd < 0)
		return refuse_item(receiver, item, errno, ": cannot write it: %s",
				   strerror(errno));
	if (fstat(item->fd, &stat))
		return refuse_item(receiver, item, errno, ": %s", strerror(errno));
	if (!S_ISREG(stat.st_mode) || stat.st_nlink != 1 || stat.st_uid != geteuid())
		return refuse_item(
			receiver, item, EEXIST,
			": %s is in the way and is not a part file of this user; remove it",
			item->part);
	if (lock_part(receiver, item, &stat))
		return 1;
	item->have = (uint64_t)stat.st_size;
	return 0;
}

/* Opens what exists from before. A part is created only when its bytes come. 0; 1:
 * refused. */
static int open_existing(struct copy_receiver *receiver, struct copy_incoming *item)
{
	struct stat stat;

	copy_path_part(item->target, item->part);
	if (!fstatat(item->folder->fd, item->part, &stat, AT_SYMLINK_NOFOLLOW))
		return open_part_file(receiver, item);
	copy_part_open_whole(item);
	return 0;
}

static int tell_have(struct copy_receiver *receiver, struct copy_incoming *item)
{
	struct copy_frame frame = { .type = COPY_HAVE,
				    .entry = item->entry,
				    .offset = item->at };

	if (copy_digest_value(&item->digest, frame.digest))
		return copy_link_fail(receiver->link, ENOMEM, "out of memory");
	copy_link_put(receiver->link, &frame);
	item->have = item->at;
	item->state = WAITING;
	receiver->waiting++;
	receiver->current = NULL;
	receiver->state = IDLE;
	return 1;
}

/* Finds what exists from before, and its digest. */
static int look_for_bytes(struct copy_receiver *receiver, struct copy_incoming *item)
{
	if (open_existing(receiver, item))
		return 1;
	/* A longer part belongs to another file. */
	if (item->size == COPY_UNKNOWN || item->have > item->size)
		item->have = 0;
	if (!item->have)
		return tell_have(receiver, item);
	receiver->current = item;
	receiver->state = HASHING;
	return 1;
}

static int on_file(struct copy_receiver *receiver, const struct copy_frame *frame)
{
	struct copy_incoming *item = new_item(receiver, frame);
	int ret;

	if (!item)
		return -receiver->link->error;
	if (copy_digest_begin(&item->digest, receiver->digest_kind))
		return copy_link_fail(receiver->link, ENOMEM, "out of memory");
	if (receiver->to_stdout)
		return tell_have(receiver, item);
	ret = find_folder(receiver, item);
	return ret ? ret : look_for_bytes(receiver, item);
}

static int hash_kept_bytes(struct copy_receiver *receiver)
{
	struct copy_incoming *item = receiver->current;
	uint8_t buffer[HASHED_MAX];
	uint64_t left = item->have - item->at;
	ssize_t length = pread(item->fd, buffer, left < HASHED_MAX ? left : HASHED_MAX,
			       (off_t)item->at);

	if (length < 0)
		return refuse_item(receiver, item, errno,
				   ": cannot read what an earlier copy left: %s",
				   strerror(errno));
	copy_digest_add(&item->digest, buffer, (size_t)length);
	item->at += (uint64_t)length;
	return length && item->at < item->have ? 1 : tell_have(receiver, item);
}

/* Opens the file for writing, unless it is open. 0; 1: it was refused, or is tried
 * again later. */
static int open_for_writing(struct copy_receiver *receiver, struct copy_incoming *item)
{
	if (receiver->to_stdout) {
		item->fd = dup(STDOUT_FILENO);
		return item->fd < 0
			       ? refuse_item(receiver, item, errno,
					     ": standard output: %s", strerror(errno))
			       : 0;
	}
	if (item->in_place) {
		copy_part_close(item);
		item->in_place = false;
	}
	if (item->fd < 0 && open_part_file(receiver, item))
		return 1;
	return ftruncate(item->fd, (off_t)item->at)
		       ? refuse_item(receiver, item, errno, ": cannot write it: %s",
				     strerror(errno))
		       : 0;
}

static int on_start(struct copy_receiver *receiver, const struct copy_frame *frame)
{
	struct copy_incoming *item = &receiver->window[frame->entry % COPY_WINDOW];

	if (receiver->state != IDLE || item->state != WAITING ||
	    item->entry != frame->entry ||
	    (frame->offset && frame->offset != item->have))
		return copy_link_fail(receiver->link, EPROTO,
				      "the peer started at another offset than agreed");
	receiver->waiting--;
	item->state = WRITTEN;
	receiver->current = item;
	receiver->state = DATA;
	item->at = item->resumed = frame->offset;
	snprintf(receiver->report->path, sizeof(receiver->report->path), "%s",
		 item->path);
	receiver->report->size = item->size;
	receiver->report->at = frame->offset;
	if (item->in_place && frame->offset)
		return 1;
	if (!frame->offset && copy_digest_begin(&item->digest, receiver->digest_kind))
		return copy_link_fail(receiver->link, ENOMEM, "out of memory");
	open_for_writing(receiver, item);
	return 1;
}

/* 0: another descriptor still has the lock. */
static int retry_lock(struct copy_receiver *receiver)
{
	struct copy_incoming *item = receiver->current;

	if (item->state == WRITTEN) {
		receiver->state = DATA;
		open_for_writing(receiver, item);
	} else {
		receiver->state = IDLE;
		look_for_bytes(receiver, item);
	}
	return receiver->state != LOCKED;
}

/*
 * Its bytes
 */

static ssize_t write_bytes(const struct copy_receiver *receiver,
			   const struct iovec *iov)
{
	const struct copy_incoming *item = receiver->current;
	ssize_t length;

	do {
		if (receiver->to_stdout)
			length = write(item->fd, iov->iov_base, iov->iov_len);
		else
			length = pwrite(item->fd, iov->iov_base, iov->iov_len,
					(off_t)item->at);
	} while (length < 0 && errno == EINTR);
	return length;
}

static int receive_data(struct copy_receiver *receiver)
{
	struct copy_incoming *item = receiver->current;
	struct iovec iov[2];
	ssize_t length = copy_link_bytes(receiver->link, iov);

	if (length <= 0)
		return (int)length;
	if (receiver->state == DRAINING) {
		copy_link_consume(receiver->link, (size_t)length);
		return 1;
	}
	if (item->size != COPY_UNKNOWN && item->at + (uint64_t)length > item->size)
		return copy_link_fail(receiver->link, EPROTO,
				      "the peer sent more bytes than the file has");
	length = write_bytes(receiver, &iov[0]);
	if (length < 0)
		return refuse_and_keep(receiver, item, errno, "writing it failed");
	copy_digest_add(&item->digest, iov[0].iov_base, (size_t)length);
	copy_link_consume(receiver->link, (size_t)length);
	item->at += (uint64_t)length;
	receiver->report->at = item->at;
	receiver->report->moved += (uint64_t)length;
	return 1;
}

/*
 * Its end
 */

static int verify_digest(struct copy_receiver *receiver, const struct copy_frame *frame)
{
	struct copy_incoming *item = receiver->current;
	uint8_t digest[COPY_DIGEST];
	int ret;

	if (copy_digest_value(&item->digest, digest))
		return copy_link_fail(receiver->link, ENOMEM, "out of memory");
	if (memcmp(digest, frame->digest, COPY_DIGEST)) {
		drop_part(receiver, item);
		return refuse_item(receiver, item, EBADMSG,
				   ": arrived damaged and was dropped; copy it again");
	}
	ret = receiver->to_stdout
		      ? 0
		      : copy_part_set_attributes(item, receiver->keep_times);
	receiver->current = NULL;
	item->state = WHOLE;
	/* Another user may own the file; its bytes are right all the same. */
	if (receiver->to_stdout || item->in_place) {
		receiver->report->files++;
		receiver->report->bytes += item->at;
		receiver->report->resumed += item->resumed;
		return accept_item(receiver, item);
	}
	if (ret)
		return refuse_and_keep(receiver, item, -ret,
				       "cannot rename it into place");
	copy_group_add(receiver->gathered, item);
	return 1;
}

static int on_done(struct copy_receiver *receiver, const struct copy_frame *frame)
{
	struct copy_incoming *item = receiver->current;

	if (receiver->state == DRAINING) {
		receiver->state = IDLE;
		return 1;
	}
	if (receiver->state != DATA || item->entry != frame->entry)
		return copy_link_fail(receiver->link, EPROTO,
				      "the peer ended a file that it did not start");
	receiver->state = IDLE;
	item->state = WHOLE; /* its last frame has come */
	if (frame->done == COPY_WHOLE &&
	    (item->size == COPY_UNKNOWN || item->at == item->size))
		return verify_digest(receiver, frame);
	if (frame->done == COPY_CHANGED) {
		drop_part(receiver, item);
		return refuse_item(
			receiver, item, ESTALE,
			": changed while it was copied and was dropped; copy it again when "
			"nothing writes to it");
	}
	if (frame->done == COPY_UNREADABLE)
		return refuse_and_keep(receiver, item, EIO,
				       "the sender cannot read it");
	return copy_link_fail(receiver->link, EPROTO,
			      "the peer ended a file too early");
}

/*
 * What the peer says
 */

static int on_end(struct copy_receiver *receiver)
{
	struct copy_frame frame = { .type = COPY_END };

	if (receiver->waiting || receiver->gathered->count || receiver->placing.group)
		return copy_link_fail(
			receiver->link, EPROTO,
			"the peer ended the transfer with files outstanding");
	copy_link_put(receiver->link, &frame);
	receiver->over = true;
	return 1;
}

static int on_peer_problem(struct copy_receiver *receiver,
			   const struct copy_frame *frame)
{
	receiver->report->problems++;
	if (receiver->report->problem)
		receiver->report->problem(receiver->report->arg, frame->text);
	return 1;
}

static int on_frame(struct copy_receiver *receiver, const struct copy_frame *frame)
{
	bool is_idle = receiver->state == IDLE;

	switch (frame->type) {
	case COPY_FILE:
		if (is_idle)
			return on_file(receiver, frame);
		break;
	case COPY_DIRECTORY:
		if (is_idle)
			return on_folder(receiver, frame);
		break;
	case COPY_START:
		return on_start(receiver, frame);
	case COPY_DATA:
		if (!is_idle)
			return 1;
		break;
	case COPY_DONE:
		return on_done(receiver, frame);
	case COPY_PROBLEM:
		return on_peer_problem(receiver, frame);
	case COPY_END:
		if (is_idle)
			return on_end(receiver);
		break;
	default:
		break;
	}
	return copy_link_fail(receiver->link, EPROTO,
			      "the peer sent a frame out of turn");
}

static int receive_frame(struct copy_receiver *receiver)
{
	struct copy_frame frame;
	int ret = copy_link_next(receiver->link, &frame);

	return ret > 0 ? on_frame(receiver, &frame) : ret;
}

/* No more comes for now. Files that the peer has yet to start are worth waiting for. */
static bool is_group_complete(const struct copy_receiver *receiver)
{
	return receiver->gathered->count && receiver->state == IDLE &&
	       !receiver->waiting;
}

static int do_own_work(struct copy_receiver *receiver)
{
	int did = receiver->placing.group ? tell_one_placed(receiver) : 0;

	if (did)
		return did;
	if (copy_group_is_due(receiver->gathered)) {
		did = place_group(receiver);
		/* With both groups full the sender waits. */
		if (did || copy_group_is_full(receiver->gathered))
			return did;
	}
	if (receiver->state == LOCKED)
		return retry_lock(receiver);
	if (receiver->state == HASHING)
		return hash_kept_bytes(receiver);
	did = receiver->link->data_left ? receive_data(receiver)
					: receive_frame(receiver);
	if (!did && is_group_complete(receiver))
		return place_group(receiver);
	return did;
}

bool copy_receiver_holds(const struct copy_receiver *receiver, const struct stat *file)
{
	for (size_t i = 0; i < COPY_WINDOW; i++) {
		const struct copy_incoming *item = &receiver->window[i];
		struct stat stat;

		if (item->state != FREE && item->fd >= 0 && !item->in_place &&
		    !fstat(item->fd, &stat) && stat.st_dev == file->st_dev &&
		    stat.st_ino == file->st_ino)
			return true;
	}
	return false;
}

bool copy_receiver_is_locked(const struct copy_receiver *receiver)
{
	return receiver->state == LOCKED;
}

bool copy_receiver_listens(const struct copy_receiver *receiver)
{
	return receiver->state != LOCKED && receiver->state != HASHING &&
	       !copy_group_is_full(receiver->gathered);
}

int copy_receiver_step(struct copy_receiver *receiver)
{
	int did = 0, pushed;

	if (copy_link_has_room(receiver->link, COPY_CONTROL_MAX))
		did = do_own_work(receiver);
	if (did < 0)
		return did;
	pushed = copy_link_push(receiver->link, did && !receiver->over);
	return pushed < 0 ? pushed : did || pushed;
}
