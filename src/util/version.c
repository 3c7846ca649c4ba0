/* SPDX-License-Identifier: MIT */
#include <sennit/api.h>

unsigned snt_version(void)
{
	return SNT_VERSION;
}
