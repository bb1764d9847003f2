"""The DynamicResources plugin: pods get the devices that their resource claims and extended resources ask for."""
