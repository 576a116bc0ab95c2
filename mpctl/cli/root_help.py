"""The text of ``mpctl --help``, stored so that printing it does not import click; renewed by
``python -m tests.unit.cli.test_cli_startup``."""

WIDTH = 80  # of the terminal, at least
TEXT = """\
Usage: mpctl [OPTIONS] COMMAND [ARGS]...

  Speculative decoding for vLLM, rolled out behind a measured gate and rolled
  back exactly.

  Examples:
    mpctl local up -f service.yaml   start a service on this machine
    mpctl rollout --spec ngram       measure n-gram, promote it if it pays
    mpctl rollback                   restore the service exactly
    mpctl history                    list what was done

Options:
  --version                       Show the version and exit.
  --platform [auto|local|kubernetes]
                                  Where services run; auto: a named cluster,
                                  else a local service.  [default: auto]
  -n, --namespace NAME            Kubernetes namespace (default: the
                                  context's; local platform: any).
  --context NAME                  Context of the kubeconfig (default: the
                                  current one).
  --kubeconfig FILE               Kubeconfig file (default: KUBECONFIG,
                                  ~/.kube/config).
  --as USER                       User to impersonate on the cluster.
  --request-timeout DURATION      Longest wait for one answer of the API
                                  server (default: 30s).
  --color [auto|always|never]     Use colour.  [default: auto]
  -v, --verbose                   Print more; twice: with a time stamp on each
                                  line.
  -q, --quiet                     Print only results, warnings and errors.
  --debug                         Print a stack trace with every error.
  -h, --help                      Show this message and exit.

Rollout:
  rollout   Roll speculation onto a service behind a measured gate
  rollback  Restore a recorded revision
  resume    Continue an interrupted operation
  abandon   End an unfinished operation, leave the service as it is
  restart   Replace engines by fresh ones of the same spec
  retire    Stop a retained baseline
  unlock    Free a service whose operator is gone

Inspect:
  watch      See whether speculation still pays, and fall back by policy
  status     Show services, engines and operations under way
  history    List recorded revisions, or print one
  diff       Compare the service with a revision or with a change
  doctor     Check a cluster for what prevents rollouts
  rbac       Print the minimal roles for mpctl
  bench      Measure without changing what serves
  report     Write a report of a measurement
  plan       Predict what speculation would bring, before anything is started
  preflight  Check a change without making it
  render     Print the changed manifest, for GitOps
  gate       Explain the gate's rules, or its verdict on a measurement
  methods    List speculation methods and their defaults
  drafts     List published drafts per target
  stage      Explain and prepare how a draft gets into the pod

Platform:
  local  Run services as processes on this machine

Clouds:
  connect   Write a kubeconfig entry for an EKS or GKE cluster
  capacity  Check whether a rollout fits a managed cluster

Other:
  config      Show settings and their origin
  completion  Print a completion script for a shell
  help        Explain a command or a topic such as exit-codes
  version     Print versions

  Exit codes: mpctl help exit-codes
"""
