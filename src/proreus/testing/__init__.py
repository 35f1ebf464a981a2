"""What is shipped for tests, of Proreus and of cloud providers: a real control plane, fakes, clocks."""
