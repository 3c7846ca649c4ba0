/* SPDX-License-Identifier: MIT */
#ifndef SENNIT_TOOL_COPY_DISK_H
#define SENNIT_TOOL_COPY_DISK_H

#include <stdbool.h>
#include <sennit/loop.h>

#include "copy_group.h"

/*
 * A thread that waits for the disk, so that the loop need not: a server has other
 * clients, and peers consider it lost if it does not answer.
 */

/* A group and whether it is in place. Zero it. */
struct copy_placing {
	struct copy_group *group; /* NULL: none */
	struct copy_placing *next;
	bool is_done;
};

/* From now on groups are put in place by a thread, which wakes this loop when a group
 * is done. Without it, or if the thread cannot be created, copy_disk_place() waits
 * itself. The limit on open files is raised as far as the process may. */
void copy_disk_begin(struct snt_loop *loop);
/* Waits for groups that are being put in place. */
void copy_disk_end(void);

/* Begins. The group must not be touched until it is done. */
void copy_disk_place(struct copy_placing *placing, struct copy_group *group);
bool copy_disk_is_done(struct copy_placing *placing);
void copy_disk_wait(struct copy_placing *placing);

#endif
