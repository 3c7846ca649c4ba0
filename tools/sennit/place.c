/* SPDX-License-Identifier: MIT */
#include "place.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool place_find(const char *relative, char path[PATH_MAX])
{
	char self[PATH_MAX], wanted[PATH_MAX];
	ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
	char *slash;

	if (length < 0)
		return false;
	self[length] = '\0';
	slash = strrchr(self, '/');
	if (!slash)
		return false;
	*slash = '\0';
	return snprintf(wanted, sizeof(wanted), "%s/%s", self, relative) <
		       (int)sizeof(wanted) &&
	       realpath(wanted, path);
}
