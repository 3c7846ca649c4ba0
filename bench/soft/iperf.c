/* SPDX-License-Identifier: MIT */
#include "soft/iperf.h"

#include <jansson.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "lib/bench.h"

#define TRIES 40

static unsigned free_port(void)
{
	struct sockaddr_in address = { .sin_family = AF_INET };
	socklen_t size = sizeof(address);
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (bind(fd, (struct sockaddr *)&address, sizeof(address)) ||
	    getsockname(fd, (struct sockaddr *)&address, &size))
		address.sin_port = 0;
	close(fd);
	return ntohs(address.sin_port);
}

/* For one client, on the other core. */
static pid_t start_server(unsigned port)
{
	char number[16];
	pid_t server = fork();

	if (server)
		return server;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	bench_other_core();
	snprintf(number, sizeof(number), "%u", port);
	if (!freopen("/dev/null", "w", stdout) || !freopen("/dev/null", "w", stderr))
		_exit(1);
	execlp("iperf3", "iperf3", "-s", "-1", "-B", "127.0.0.1", "-p", number, NULL);
	_exit(1);
}

/* Returns bits per second; 0: the server is not there. */
static double run_client(unsigned port)
{
	char command[128];
	json_t *report, *end, *received;
	double speed = 0;
	FILE *pipe;

	snprintf(command, sizeof(command),
		 "iperf3 -c 127.0.0.1 -p %u -t 1 -l 1M -J 2>/dev/null", port);
	pipe = popen(command, "r");
	if (!pipe)
		return 0;
	report = json_loadf(pipe, 0, NULL);
	end = json_object_get(report, "end");
	received = json_object_get(end, "sum_received");
	speed = json_number_value(json_object_get(received, "bits_per_second"));
	json_decref(report);
	return pclose(pipe) ? 0 : speed;
}

double iperf_write_mib(void)
{
	const struct timespec moment = { .tv_nsec = 50000000 };
	unsigned port = free_port();
	pid_t server = start_server(port);
	double speed = 0;

	/* It listens when it does; without iperf3 it ends at once. */
	for (unsigned i = 0; i < TRIES && !(speed > 0); i++) {
		nanosleep(&moment, NULL);
		if (waitpid(server, NULL, WNOHANG) == server) {
			server = -1;
			break;
		}
		speed = run_client(port);
	}
	if (server > 0) {
		kill(server, SIGKILL);
		waitpid(server, NULL, 0);
	}
	return speed > 0 ? 8e9 * (1 << 20) / speed : 0;
}
