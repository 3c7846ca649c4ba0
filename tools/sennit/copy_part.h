/* SPDX-License-Identifier: MIT */
#ifndef TOOL_COPY_PART_H
#define TOOL_COPY_PART_H

#include <stdbool.h>
#include <sys/stat.h>

#include "copy.h"

/* The file that an incoming item is written to, or was before, in item->fd. */

void copy_part_close(struct copy_incoming *item);

/* Is the opened file still the part? The previous holder of its lock may have given it its
 * final name. */
bool copy_part_is_named(const struct copy_incoming *item, const struct stat *opened);

/* Copying a folder again finds most of its files complete: a file of the right size,
 * with no part left by an earlier try, is compared before it is written again. */
bool copy_part_open_whole(struct copy_incoming *item);

/* 0; -errno. */
int copy_part_set_attributes(const struct copy_incoming *item, bool keeps_times);

#endif
