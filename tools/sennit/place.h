/* SPDX-License-Identifier: MIT */
#ifndef SENNIT_TOOL_PLACE_H
#define SENNIT_TOOL_PLACE_H

#include <limits.h>
#include <stdbool.h>

/*
 * The location of this program and of the files next to it: in an installation
 * PREFIX/bin, in a build folder BUILD/tools/sennit.
 */

/* A path relative to the folder of this program, if there is such a file. */
bool place_find(const char *relative, char path[PATH_MAX]);

#endif
